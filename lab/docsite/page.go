package docsite

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/russross/blackfriday/v2"

	"heddle/internal/markup"
)

// page is a page without what differs at each visit.
type page struct {
	path     string
	title    string
	about    string // its first paragraph
	headings []string
	content  markup.HTML
}

// kinds are what the files have of Markdown.
const kinds = blackfriday.NoIntraEmphasis | blackfriday.Tables | blackfriday.FencedCode | blackfriday.SpaceHeadings

func pagePath(name string) string    { return "/" + strings.TrimSuffix(name, ".md") }
func picturePath(name string) string { return "/pictures/" + name }

// ownPicture is a picture that differs at each visit, which a script loads.
var ownPicture = regexp.MustCompile(`<img src="([^"]+\.png)"`)

// formatted is where the site has a picture in a format.
func formatted(picture string, f format) string {
	return strings.TrimSuffix(picture, ".png") + f.ending + ".png"
}

// render makes a page of a Markdown file. Links to files that are no page of the site, such as those of the source tree, become text.
func render(name string, text []byte, names []string) (*page, error) {
	p := &page{path: pagePath(name)}
	document := blackfriday.New(blackfriday.WithExtensions(kinds)).Parse(text)
	var dead []*blackfriday.Node
	document.Walk(func(n *blackfriday.Node, entering bool) blackfriday.WalkStatus {
		switch {
		case !entering:
		case n.Type == blackfriday.Heading:
			title := textOf(n)
			n.HeadingID = anchor(title)
			if p.title == "" {
				p.title = title
			} else {
				p.headings = append(p.headings, title)
			}
		case n.Type == blackfriday.Paragraph && p.about == "":
			p.about = textOf(n)
		case n.Type == blackfriday.Image:
			n.Destination = []byte(picturePath(string(n.Destination)))
		case n.Type == blackfriday.Link:
			target, alive := resolve(string(n.Destination), names)
			if n.Destination = []byte(target); !alive {
				dead = append(dead, n)
			}
		}
		return blackfriday.GoToNext
	})
	for _, n := range dead {
		for n.FirstChild != nil {
			n.InsertBefore(n.FirstChild)
		}
		n.Unlink()
	}
	if p.title == "" {
		return nil, errors.New("it has no heading")
	}
	var out bytes.Buffer
	renderer := blackfriday.NewHTMLRenderer(blackfriday.HTMLRendererParameters{})
	document.Walk(func(n *blackfriday.Node, entering bool) blackfriday.WalkStatus {
		return renderer.RenderNode(&out, n, entering)
	})
	p.content = markup.HTML(ownPicture.ReplaceAllString(out.String(), `<img data-src="$1"`))
	return p, nil
}

// resolve returns what a link of a file is on the site.
func resolve(target string, names []string) (to string, alive bool) {
	name, fragment, cut := strings.Cut(target, "#")
	switch {
	case strings.Contains(target, "://") || name == "":
		return target, true
	case !slices.Contains(names, name):
		return "", false
	case cut:
		return pagePath(name) + "#" + fragment, true
	}
	return pagePath(name), true
}

// textOf returns the text in a node.
func textOf(n *blackfriday.Node) string {
	var text strings.Builder
	n.Walk(func(n *blackfriday.Node, entering bool) blackfriday.WalkStatus {
		if entering {
			text.Write(n.Literal)
		}
		return blackfriday.GoToNext
	})
	return text.String()
}

// anchor is the name of a heading as links in the files have it: letters, digits and hyphens.
func anchor(title string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case unicode.IsLetter(r) || unicode.IsDigit(r) || r == '-' || r == '_':
			return unicode.ToLower(r)
		}
		return -1
	}, title)
}

// overview is the page that leads to all others.
func overview(pages []*page) *page {
	var m markup.Page
	m.Put(`<h1>Heddle</h1><p><img src="/pictures/heddle.svg" alt="One session over three networks"></p><dl>`)
	for _, p := range pages {
		m.Printf(`<dt><a href="%s">%s</a></dt><dd>%s</dd>`, p.path, p.title, p.about)
	}
	m.Put("</dl>")
	return &page{path: "/", title: "Heddle", content: markup.HTML(m.String())}
}

// gallery is the page with all pictures.
func (s *Site) gallery() *page {
	var m markup.Page
	m.Put("<h1>Pictures</h1>")
	for _, target := range slices.Sorted(maps.Keys(s.shots)) {
		m.Printf(`<p><img data-src="%s" alt="%s"></p>`, target, strings.TrimSuffix(path.Base(target), ".png"))
	}
	return &page{path: "/pictures", title: "Pictures", about: "All pictures of the documentation.", content: markup.HTML(m.String())}
}

// icon is in the page itself, as it is small.
const icon = `data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 4 4'%3E%3Cpath d='M1 0v4M3 0v4M0 2h4' stroke='teal'/%3E%3C/svg%3E`

// teaser is what each second page has below its text.
func (s *Site) teaser() markup.HTML {
	var m markup.Page
	m.Put(`<h2>Seen in practice</h2><p>`)
	for _, target := range slices.Sorted(maps.Keys(s.shots)) {
		if strings.HasSuffix(target, "-card.png") || strings.HasSuffix(target, "-icon.png") {
			m.Printf(`<a href="/pictures"><img data-src="%s" alt="%s"></a>`, target, strings.TrimSuffix(path.Base(target), ".png"))
		}
	}
	m.Put("</p>")
	return markup.HTML(m.String())
}

// document is a page as one visitor gets it.
func (s *Site) document(p *page) []byte {
	var m markup.Page
	m.Printf(`<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>%s</title>`, p.title)
	m.Put(`<link rel="icon" href="` + icon + `"><link rel="stylesheet" href="/style.css"><script src="/app.js" defer></script></head><body><nav>`)
	for _, other := range s.pages {
		m.Printf(`<a href="%s">%s</a>`, other.path, other.title)
	}
	m.Put(`</nav><main><form id="search">`)
	m.Printf(`<input type="hidden" name="state" value="%s"><input name="words" placeholder="Search">`, markup.HTML(s.token(sessionBytes)))
	m.Put(`<ul id="found"></ul></form>`, p.content, `</main><aside><h2>Read last</h2><ul id="recent"></ul></aside>`)
	// The state is JSON in a script, which is not escaped. The path is one of the site's own, and tokens are base64.
	state, _ := json.Marshal(map[string]string{"page": p.path, "visit": s.token(sessionBytes)}) // it never fails
	m.Put(`<script id="state" type="application/json">`, markup.HTML(state), `</script></body></html>`)
	return []byte(m.String())
}

// lost is what the site has for a path that leads nowhere.
const lost = `<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Not found</title></head><body><h1>Not found</h1><p><a href="/">Heddle</a></p></body></html>`
