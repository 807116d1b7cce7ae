package plot

import (
	"fmt"
	"html"
	"strconv"
	"strings"
)

// canvas writes SVG. It escapes all text.
type canvas struct{ b strings.Builder }

func newCanvas(width, height float64, title, description string) *canvas {
	c := &canvas{}
	fmt.Fprintf(&c.b, `<svg class="plot" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %s %s" role="img" aria-label="%s">`,
		num(width), num(height), html.EscapeString(title+". "+description))
	fmt.Fprintf(&c.b, "<title>%s</title><desc>%s</desc>\n", html.EscapeString(title), html.EscapeString(description))
	return c
}

func (c *canvas) done() string {
	c.b.WriteString("</svg>\n")
	return c.b.String()
}

// Standalone makes a figure a file of its own.
func Standalone(svg string) string {
	return strings.Replace(svg, "<title>", "<style>svg{background:#fff}"+Palette+
		"@media (prefers-color-scheme:dark){svg{background:#14191e}}</style><title>", 1)
}

// num writes a coordinate with at most two decimals.
func num(v float64) string {
	text := strconv.FormatFloat(v, 'f', 2, 64)
	return strings.TrimSuffix(strings.TrimRight(text, "0"), ".")
}

const (
	start  = "start"
	middle = "middle"
	end    = "end"
)

func (c *canvas) text(x, y float64, anchor, class, text string) {
	fmt.Fprintf(&c.b, `<text x="%s" y="%s" text-anchor="%s" class="%s">%s</text>`+"\n",
		num(x), num(y), anchor, class, html.EscapeString(text))
}

func (c *canvas) sideways(x, y float64, text string) {
	fmt.Fprintf(&c.b, `<text transform="translate(%s %s) rotate(-90)" text-anchor="middle" class="soft">%s</text>`+"\n",
		num(x), num(y), html.EscapeString(text))
}

func (c *canvas) line(x1, y1, x2, y2 float64) {
	fmt.Fprintf(&c.b, `<path class="rule" d="M%s %sL%s %s"/>`+"\n", num(x1), num(y1), num(x2), num(y2))
}

func (c *canvas) rect(x, y, w, h float64, colour int, opacity float64, tip string) {
	fmt.Fprintf(&c.b, `<rect x="%s" y="%s" width="%s" height="%s" style="fill:var(--s%d)" opacity="%s"><title>%s</title></rect>`+"\n",
		num(x), num(y), num(max(w, 0)), num(max(h, 0)), colour%colours, num(opacity), html.EscapeString(tip))
}

func (c *canvas) fill(path string, colour int, opacity float64) {
	fmt.Fprintf(&c.b, `<path d="%s" style="fill:var(--s%d)" opacity="%s"/>`+"\n", path, colour%colours, num(opacity))
}

func (c *canvas) stroke(path string, colour int, dash string) {
	fmt.Fprintf(&c.b, `<path d="%s" style="fill:none;stroke:var(--s%d);stroke-width:2" stroke-dasharray="%s"/>`+"\n",
		path, colour%colours, dash)
}
