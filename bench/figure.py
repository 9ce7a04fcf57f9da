"""Figures as SVG: lines or bars over axes, with a text below. Needs nothing but Python."""
import math
from xml.sax.saxutils import escape

COLOURS = ["#1b6ca8", "#c8553d", "#3c8d53", "#8a5fa8", "#b08900", "#555555"]
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BELOW = 760, 420, 76, 24, 64, 52
LINE = 15  # of the text below


def ticks(low, high, log):
    """Round values between the two."""
    if log:
        return [m * 10.0 ** e for e in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
                for m in ((1, 2, 5) if high / low < 200 else (1,)) if low <= m * 10.0 ** e <= high]
    step = 10 ** math.floor(math.log10((high - low) / 4 or 1))
    step = next(step * m for m in (1, 2, 5, 10) if (high - low) / (step * m) <= 7)
    return [i * step for i in range(math.ceil(low / step), math.floor(high / step + 1e-9) + 1)]


def number(value):
    return f"{value:.10g}" if value < 1e6 else f"{value / 1e6:g}M"


class Figure:
    """figure = Figure(title, x, y); figure.line(name, [(x, y), ...]); figure.write(path). An axis is logarithmic where `log` has
    its letter. A text below tells how it was measured."""

    def __init__(self, title, x, y, log="", text=()):
        self.title, self.x, self.y, self.log, self.text = title, x, y, log, list(text)
        self.lines, self.marks = [], []

    def line(self, name, points, dashed=False, like=None):
        """`like`: the colour of the line of that number."""
        self.lines.append((name, [p for p in points if p[1] is not None], dashed, len(self.lines) if like is None else like))

    def mark(self, name, x):
        """An upright line at an x of interest: what the paper tells."""
        self.marks.append((name, x))

    def scale(self, axis):
        values = [p[axis] for line in self.lines for p in line[1]] + [m[1] for m in self.marks if axis == 0]
        log = "xy"[axis] in self.log
        low, high = min(values), max(values)
        low = low / 1.3 if log else min(low, 0)
        high = high * 1.3 if log else high * 1.06 or 1
        length, start = ((WIDTH - LEFT - RIGHT, LEFT), (-(HEIGHT - TOP - BELOW), HEIGHT - BELOW))[axis]

        def place(value):
            part = (math.log(value / low) / math.log(high / low)) if log else (value - low) / (high - low)
            return start + length * part
        return place, ticks(low, high, log)

    def svg(self):
        place_x, ticks_x = self.scale(0)
        place_y, ticks_y = self.scale(1)
        bottom, height = HEIGHT - BELOW, HEIGHT + LINE * len(self.text) + 8
        out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" font-family="sans-serif" font-size="12">',
               f'<rect width="{WIDTH}" height="{height}" fill="white"/>']

        def text(x, y, words, more=""):
            out.append(f'<text x="{x:.1f}" y="{y:.1f}" {more}>{escape(words)}</text>')

        def stroke(points, colour, more=""):
            path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
            out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" {more}/>')
        text(LEFT, 22, self.title, 'font-size="15" font-weight="bold"')
        for x in ticks_x:
            stroke([(place_x(x), TOP), (place_x(x), bottom)], "#e4e4e4")
            text(place_x(x), bottom + 16, number(x), 'text-anchor="middle"')
        for y in ticks_y:
            stroke([(LEFT, place_y(y)), (WIDTH - RIGHT, place_y(y))], "#e4e4e4")
            text(LEFT - 6, place_y(y) + 4, number(y), 'text-anchor="end"')
        stroke([(LEFT, TOP), (LEFT, bottom), (WIDTH - RIGHT, bottom)], "#333333")
        text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 14, self.x, 'text-anchor="middle"')
        text(16, (TOP + bottom) / 2, self.y, f'text-anchor="middle" transform="rotate(-90 16 {(TOP + bottom) / 2:.1f})"')
        for n, (name, x) in enumerate(self.marks):
            stroke([(place_x(x), TOP), (place_x(x), bottom)], "#888888", 'stroke-dasharray="2,4"')
            text(place_x(x) + 3, TOP + 12 + 13 * n, name, 'font-size="10" fill="#666666"')
        at, row = LEFT, 40
        for name, points, dashed, colour in self.lines:
            if at + 27 + 6.3 * len(name) > WIDTH - RIGHT:
                at, row = LEFT, row + 15
            paint = COLOURS[colour % len(COLOURS)]
            more = 'stroke-width="1.8"' + (' stroke-dasharray="5,4"' if dashed else "")
            stroke([(place_x(x), place_y(y)) for x, y in points], paint, more)
            if len(points) < 40 and not dashed:
                out += [f'<circle cx="{place_x(x):.1f}" cy="{place_y(y):.1f}" r="2.6" fill="{paint}"/>' for x, y in points]
            stroke([(at, row), (at + 22, row)], paint, more)
            text(at + 27, row + 4, name, 'font-size="11"')
            at += 44 + 6.3 * len(name)
        for n, words in enumerate(self.text):
            text(LEFT, HEIGHT + LINE * n + 4, words, 'font-size="11" fill="#444444"')
        return "\n".join([*out, "</svg>", ""])

    def write(self, path):
        with open(path, "w", encoding="utf-8") as f:
            f.write(self.svg())
