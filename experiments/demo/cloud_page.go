package demo

import (
	_ "embed"
	"encoding/base64"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"heddle/internal/markup"
	"heddle/internal/text"
	"heddle/path"
)

//go:embed cloud.css
var cloudStyle string

// title is the title of a site's page.
func title(s site) string {
	return map[site]string{newsSite: "The news of today", clinicSite: "A clinic", shopSite: "A book shop"}[s]
}

// writeSite makes a directory with the page of a site.
func writeSite(dir string, s site) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	var m markup.Page
	m.Printf(`<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>%s</title>
<style>body{font:18px/1.5 system-ui,sans-serif;max-width:36rem;margin:2rem auto;padding:0 1rem}</style>
</head>
<body>
<h1>%[1]s</h1>
<p>This page is of %[2]s. Nothing on it is made for pseudonyms: it is served by an unmodified web server.</p>
`, title(s), s.name)
	if s == newsSite {
		m.Printf(`<p><a href="https://%s/">%s</a></p>`, shopSite.name, linkText)
	}
	m.Put("\n</body>\n</html>\n")
	return os.WriteFile(filepath.Join(dir, "index.html"), []byte(m.String()), 0o644)
}

// cloudRow is one kind of what an observer saw.
type cloudRow struct {
	Name              string
	Plain, Pseudonyms []string
}

// rows puts both ways to visit side by side.
func (r CloudResult) rows() []cloudRow {
	row := func(name string, of func(Saw) []string) cloudRow {
		return cloudRow{name, of(r.Plain), of(r.Pseudonyms)}
	}
	return []cloudRow{
		row("sites that it could name", func(s Saw) []string {
			return append([]string{fmt.Sprintf("%d of %d", len(s.Sites), len(r.Visited))}, s.Sites...)
		}),
		row("names in DNS", func(s Saw) []string { return s.DNS }),
		row("names in TLS (SNI)", func(s Saw) []string { return s.TLS }),
		row("names in certificates", func(s Saw) []string { return s.Certificates }),
		row("server addresses", func(s Saw) []string { return s.Servers }),
		row("TCP connections", func(s Saw) []string { return []string{fmt.Sprint(s.Connections)} }),
		row("bytes", func(s Saw) []string { return []string{text.Size(s.Bytes)} }),
	}
}

const cloudClaim = "From a capture between the client and the cloud, and from what the servers show to anybody who asks. " +
	"With pseudonyms this network sees the cloud, that the same pseudonym is used again, and sizes and times of packets, which may tell the site. " +
	"The cloud knows who visits what."

// writeCloudPage writes the page as one file.
func writeCloudPage(r CloudResult) error {
	var m markup.Page
	loopback := ""
	if r.World == "loopback" {
		loopback = ", over loopback addresses"
	}
	m.Printf(`<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<meta name="color-scheme" content="light dark">
<title>What a network sees of visits to a cloud</title>
<style>
%s</style>
</head>
<body>
<header>
<h1>What a network sees of visits to a cloud</h1>
<p class="soft">%s; with %s%s</p>
</header>
<main>
<p>A person visited %d sites of a cloud, and followed a link from one to another: first by their names, then by pseudonyms. Between her and
the cloud an observer captured all packets, and then asked each server for its certificate.</p>
<section><h2>What the observer saw</h2>
<div class="wide" tabindex="0" role="region" aria-label="What the observer saw"><table>
<thead><tr><td></td><th scope="col">plain HTTPS</th><th scope="col">pseudonyms</th></tr></thead>
<tbody>`, markup.HTML(cloudStyle), r.Report.Start.Format("2006-01-02 15:04:05 MST"), r.Client, loopback, len(r.Visited))
	for _, row := range r.rows() {
		m.Printf(`<tr><th scope="row">%s</th>`, row.Name)
		putCell(&m, row.Plain)
		putCell(&m, row.Pseudonyms)
		m.Put("</tr>\n")
	}
	m.Printf(`</tbody></table></div>
<p><a href="%s">Packets, sizes and times</a> of both.</p></section>
`, filepath.Base(r.Details))
	if r.picture != nil {
		m.Printf(`<section><h2>What the person saw</h2>
<figure><img src="data:image/png;base64,%s" alt="The page of a site in Chromium" width="720">
<figcaption>The first site by its pseudonym. Its own server is unmodified.</figcaption></figure></section>`, base64.StdEncoding.EncodeToString(r.picture))
	}
	m.Printf(`
<section><h2>What this says, and what it does not</h2>
<p>%s</p>`, cloudClaim)
	if len(r.Notes) > 0 {
		m.List(r.Notes)
	}
	m.Put("</section>\n</main>\n</body>\n</html>\n")
	if err := os.WriteFile(r.Page, []byte(m.String()), 0o666); err != nil {
		return &path.Error{What: "page " + r.Page, Err: err}
	}
	return nil
}

// putCell adds what an observer saw of one kind.
func putCell(m *markup.Page, items []string) {
	m.Put("<td>")
	for _, item := range items {
		m.Printf("<div>%s</div>", item)
	}
	if len(items) == 0 {
		m.Put(`<div class="soft">none</div>`)
	}
	m.Put("</td>")
}

// Width of a column of names: a pseudonym has 26 characters before its zone.
const cloudColumn = 42

// WriteText prints what the observer saw of both ways to visit.
func (r CloudResult) WriteText(w io.Writer) error {
	var b strings.Builder
	line := func(name, plain, pseudonyms string) {
		fmt.Fprintln(&b, strings.TrimRight(fmt.Sprintf("%-26s %-22s %-*s", name, plain, cloudColumn, pseudonyms), " "))
	}
	line("", "plain HTTPS", "pseudonyms")
	for _, row := range r.rows() {
		for i := range max(len(row.Plain), len(row.Pseudonyms), 1) {
			cell := func(all []string) string {
				switch {
				case i < len(all):
					return all[i]
				case i == 0:
					return "none"
				}
				return ""
			}
			line([]string{row.Name, ""}[min(i, 1)], cell(row.Plain), cell(row.Pseudonyms))
		}
	}
	fmt.Fprintf(&b, "\n%s\n", cloudClaim)
	for _, note := range r.Notes {
		fmt.Fprintln(&b, "-", note)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
