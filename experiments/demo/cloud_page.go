package demo

import (
	_ "embed"
	"encoding/base64"
	"errors"
	"fmt"
	"html/template"
	"io"
	"os"
	"path/filepath"
	"strings"

	"heddle/internal/text"
	"heddle/path"
)

//go:embed site.html
var siteText string

//go:embed cloud.html
var cloudText string

var (
	siteTemplate  = template.Must(template.New("site").Parse(siteText))
	cloudTemplate = template.Must(template.New("cloud").Parse(cloudText))
)

// title is the title of a site's page.
func title(s site) string {
	return map[site]string{newsSite: "The news of today", clinicSite: "A clinic", shopSite: "A book shop"}[s]
}

// writeSite makes a directory with the page of a site.
func writeSite(dir string, s site) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	page := struct{ Title, Name, Link, LinkText string }{Title: title(s), Name: s.name}
	if s == newsSite {
		page.Link, page.LinkText = "https://"+shopSite.name+"/", linkText
	}
	f, err := os.OpenFile(filepath.Join(dir, "index.html"), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	return errors.Join(siteTemplate.Execute(f, page), f.Close())
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
	f, err := os.Create(r.Page)
	if err != nil {
		return &path.Error{What: "page " + r.Page, Err: err}
	}
	page := struct {
		CloudResult
		Rows             []cloudRow
		Claim, DetailsAt string
		Picture          template.URL
	}{CloudResult: r, Rows: r.rows(), Claim: cloudClaim, DetailsAt: filepath.Base(r.Details)}
	if r.picture != nil {
		page.Picture = template.URL("data:image/png;base64," + base64.StdEncoding.EncodeToString(r.picture))
	}
	return errors.Join(cloudTemplate.Execute(f, page), f.Close())
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
