package observe

import (
	_ "embed"
	"io"
	"strings"

	"heddle/internal/markup"
	"heddle/observe/plot"
)

//go:embed report.css
var pageStyle string

// Compare reports on a session and on other ways to run it.
func Compare(s *Session, baselines ...*Session) Report {
	r := s.Report()
	for _, b := range baselines {
		r.Baselines = append(r.Baselines, b.Report())
	}
	return r
}

// WriteHTML writes the report on a session and its baselines as one self-contained page.
func WriteHTML(w io.Writer, s *Session, baselines ...*Session) error {
	r := Compare(s, baselines...)
	sessions := append([]*Session{s}, baselines...)
	var m markup.Page
	m.Printf(`<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="color-scheme" content="light dark">
<title>%s: what each network saw</title>
<style>
%s
%s</style>
</head>
<body>
<header>
<h1>What each network saw</h1>
<p class="soft">Session of %s</p>
</header>
<main>
`, r.Label, markup.HTML(plot.Palette), markup.HTML(pageStyle), r.Start.Format("2006-01-02 15:04:05 MST"))
	var headlines []string
	for _, session := range r.sessions() {
		headlines = append(headlines, session.headline())
	}
	m.List(headlines)
	m.Put("\n<section><h2>Who saw what, and when</h2>")
	colour := 0
	for _, session := range sessions {
		m.Put(markup.HTML(session.timeline(colour)))
		colour += len(session.Observers)
	}
	m.Printf("</section>\n<section><h2>How much of it</h2>%s</section>\n", markup.HTML(shareBars(r)))
	putFigures(&m, r)
	putRead(&m, r)
	m.Put("<section><h2>The shape of the traffic</h2>\n<p>Encryption hides neither times nor sizes. This is what is left of them at each observer.</p>\n")
	colour = 0
	for _, session := range sessions {
		for i := range session.Observers {
			o := &session.Observers[i]
			m.Printf("<h3>%s, %s</h3><div class=\"pair\">%s%s</div>\n", session.Label, o.Name, markup.HTML(o.gaps(colour)), markup.HTML(o.sizes(colour)))
			colour++
		}
	}
	m.Printf("</section>\n<section><h2>What this says, and what it does not</h2>\n<p>%s</p>", r.Claim)
	m.List(r.allLimits())
	m.Put("</section>\n</main>\n</body>\n</html>\n\n")
	_, err := io.WriteString(w, m.String())
	return err
}

// putFigures adds the table of figures, with a column for each observer.
func putFigures(m *markup.Page, r Report) {
	m.Put(`<section><h2>In figures</h2>
<div class="wide" tabindex="0" role="region" aria-label="Table of figures"><table>
<thead><tr><td></td>`)
	for _, session := range r.sessions() {
		m.Printf(`<th scope="colgroup" colspan="%d">%s</th>`, len(session.Observers), session.Label)
	}
	m.Put("</tr></thead>\n<tbody>")
	all := columns(r)
	row := func(name string, cell func(column) string) {
		class := markup.HTML("")
		if strings.HasPrefix(name, " ") {
			class = ` class="part"` // of the row above
		}
		m.Printf(`<tr><th scope="row"%s>%s</th>`, class, strings.TrimSpace(name))
		for _, c := range all {
			m.Printf("<td>%s</td>", cell(c))
		}
		m.Put("</tr>\n")
	}
	row("observer", func(c column) string { return c.observer })
	for i, name := range rowNames {
		row(name, func(c column) string { return c.cells[i] })
	}
	m.Put("</tbody></table></div></section>\n")
}

// putRead adds the table of what each observer could read.
func putRead(m *markup.Page, r Report) {
	m.Put(`<section><h2>What could be read</h2>
<div class="wide" tabindex="0" role="region" aria-label="Table of what could be read"><table class="read">
<thead><tr><th scope="col">observer</th><th scope="col">names</th><th scope="col">requests</th></tr></thead>
<tbody>`)
	items := func(items []string) {
		m.Put("<td>")
		for _, item := range items {
			m.Printf("<code>%s</code><br>", item)
		}
		if len(items) == 0 {
			m.Put("none")
		}
		m.Put("</td>")
	}
	for _, session := range r.sessions() {
		for _, e := range session.Observers {
			m.Printf(`<tr><th scope="row">%s, %s</th>`, session.Label, e.Observer)
			items(nameList(e.Names))
			items(e.Content.Requests)
			m.Put("</tr>\n")
		}
	}
	m.Put("</tbody></table></div></section>\n")
}
