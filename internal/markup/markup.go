// Package markup writes HTML from Go. All that a page shows is escaped, unless its type says that it is HTML.
//
// html/template would do this too, but calls methods by names that only its templates know, so the linker would have to keep each
// exported method of each type in the binary.
package markup

import (
	"fmt"
	"strings"
)

// HTML is text that needs no escaping.
type HTML string

// Page collects the HTML of one page. The zero value is empty.
type Page struct{ b strings.Builder }

// Put adds HTML. It takes constants and what is of type HTML alone.
func (p *Page) Put(parts ...HTML) {
	for _, part := range parts {
		p.b.WriteString(string(part))
	}
}

// Printf adds HTML of a format. Arguments may be in the text of an element or in an attribute in quotes, but not in scripts, in styles,
// or as the name of an element or attribute. The caller must know the scheme of an argument that is a whole URL.
func (p *Page) Printf(format string, args ...any) {
	safe := make([]any, len(args))
	for i, a := range args {
		switch a := a.(type) {
		case HTML, int:
			safe[i] = a
		default:
			safe[i] = Escape(fmt.Sprint(a))
		}
	}
	fmt.Fprintf(&p.b, format, safe...)
}

// List adds a list without numbers.
func (p *Page) List(items []string) {
	p.Put("<ul>")
	for _, item := range items {
		p.Printf("<li>%s</li>", item)
	}
	p.Put("</ul>")
}

// String returns the page.
func (p *Page) String() string { return p.b.String() }

// escapes are those of html/template: the plus sign is for browsers that took UTF-7.
var escapes = strings.NewReplacer("\x00", "\uFFFD", `"`, "&#34;", "&", "&amp;", "'", "&#39;", "+", "&#43;", "<", "&lt;", ">", "&gt;")

// Escape returns text as HTML, for an element or an attribute in quotes.
func Escape(text string) HTML { return HTML(escapes.Replace(text)) }
