package web

import (
	"net/url"
	"time"

	"heddle/internal/markup"
)

// whole is a page with what is around all of them.
func whole(p Page) string {
	var m markup.Page
	m.Printf(`<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>%s</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="%s">
</head>
<body>
<main>
<h1>%s</h1>

`, p.title(), StylePath, p.title())
	p.main(&m)
	m.Put(`
</main>
</body>
</html>
`)
	return m.String()
}

func day(t time.Time) string { return t.UTC().Format("2 January 2006") }

func (h Home) title() string { return "Pseudonyms of " + h.Zone }

func (h Home) main(m *markup.Page) {
	m.Printf(`<p>A pseudonym is a name by which only you reach a site. A network on the way sees that you use %s, and not which site.</p>
`, h.Zone)
	if h.Login {
		m.Printf(`<p>This cloud asks for an account, so that nobody can fill the store. The store keeps no name of it.</p>
<p><a class="button" href="/login?site=%s">Log in</a></p>
`, url.QueryEscape(h.Site))
	} else {
		h.form(m)
	}
	if h.Account {
		m.Put(`<form method="post" action="/logout"><button>Log out</button></form>`)
	}
	m.Put("\n")
	if h.Known {
		m.Put("\n<h2>Yours</h2>\n")
		h.list(m)
		m.Put("\n")
	} else {
		m.Put(`
<p class="soft">Have you been here before? Then open your bookmark of this store instead: a network sees the name of this page.</p>
`)
	}
	m.Put("\n")
}

// form asks for a site.
func (h Home) form(m *markup.Page) {
	m.Printf(`<form method="post" action="/get">
<label for="site">Site</label>
<div class="row"><input id="site" name="site" list="sites" value="%s" required autocomplete="off" autocapitalize="none" spellcheck="false" placeholder="news.example">
<button>Get a pseudonym</button></div>
<datalist id="sites">`, h.Site)
	for _, site := range h.Sites {
		m.Printf(`<option value="%s">`, site)
	}
	m.Put("</datalist>\n")
	if h.Own {
		m.Put(`<label class="check"><input type="checkbox" name="own" value="yes" checked> Also get a pseudonym of this store. By it you list, renew and
revoke your pseudonyms later, and links between sites lead to them. `)
		if !h.Account {
			m.Put("Without it you cannot.")
		}
		m.Put("</label>")
	}
	m.Put("\n</form>\n")
}

// list shows a person's pseudonyms.
func (h Home) list(m *markup.Page) {
	if len(h.All) == 0 {
		m.Put("<p>You have none yet.</p>")
		return
	}
	m.Put(`<div class="wide" tabindex="0" role="region" aria-label="Your pseudonyms"><table>
<thead><tr><th scope="col">site</th><th scope="col">pseudonym</th><th scope="col">ends</th><th scope="col">change</th></tr></thead>
<tbody>`)
	for _, p := range h.All {
		ends := markup.HTML(`<td class="ends">` + day(p.Ends) + "</td>")
		if p.Ended {
			ends = "<td>ended: renew it</td>"
		}
		m.Printf(`<tr><th scope="row">%s</th><td><a href="%s" rel="noreferrer">%s</a></td>
%s
<td><form method="post" action="/renew"><input type="hidden" name="name" value="%[3]s"><button aria-label="Renew the pseudonym of %[1]s">Renew</button></form>
<a href="/revoke?name=%[5]s" aria-label="Revoke the pseudonym of %[1]s">Revoke</a></td></tr>
`, p.Site, p.URL, p.Name, ends, url.QueryEscape(p.Name))
	}
	m.Put("</tbody></table></div>")
}

func (p Made) title() string { return "Your pseudonym of " + p.Site }

func (p Made) main(m *markup.Page) {
	these, theFiles, them := "this file", "the file", "it"
	if len(p.Files) > 1 {
		these, theFiles, them = "these files", "the files", "them"
	}
	m.Printf("<ol>\n<li><h2>Save %s</h2>\n<ul>", these)
	for _, f := range p.Files {
		m.Printf(`<li><a class="file" download="%s" href="%s">%[1]s</a> for %[3]s</li>`, f.Name, f.URL, f.For)
	}
	m.Printf(`</ul>
<p>The passphrase of %s is <code id="passphrase">%s</code>. It is shown once, and nobody keeps it.</p></li>
`, theFiles, p.Passphrase)
	p.imports(m, them)
	links := "this link"
	if p.Own != nil {
		links = "these links"
	}
	m.Printf(`<li><h2>Bookmark %s</h2>
<p><a id="site" href="%s" rel="noreferrer">%s</a>, by the name %s, until %s</p>
`, links, p.URL, p.Site, p.Name, day(p.Ends))
	if p.Own != nil {
		m.Printf(`<p><a id="store" href="%s" rel="noreferrer">your entrance to this store</a>, by the name %s: list, renew and revoke pseudonyms there</p>`,
			p.Own.URL, p.Own.Name)
	}
	m.Put("\n")
	if p.NoOwn != "" {
		m.Printf(`<p>A pseudonym of this store could not be made: %s. Get one later on the first page, with the site store.%s.</p>`, p.NoOwn, p.Zone)
	}
	m.Put(`
<p>Keep the links as secret as the files: with a link another site could find out that you use this one.</p></li>
</ol>
<p>If your browser asks for a certificate, take the one of the site's name.</p>
`)
}

// imports says how browsers take the files.
func (p Made) imports(m *markup.Page, them string) {
	vouches := markup.HTML("It is a root of the cloud's operator, and can vouch for other sites too.")
	if p.Limited {
		vouches = "It can vouch for names of " + markup.Escape(p.Zone) + " only."
	}
	m.Printf(`<li><h2>Import %s</h2>
<p>Your browser also has to trust <a href="/root.crt" download="%s.crt">the certificate of %[2]s</a>. %[3]s</p>
`, them, p.Zone, vouches)
	for _, b := range p.Browsers {
		open := ""
		if b.Name == p.Browser {
			open = " open"
		}
		m.Printf("<details%s><summary>%s</summary><ol>", open, b.Title)
		for _, step := range b.Steps {
			m.Printf("<li>%s</li>", step)
		}
		m.Put("</ol></details>\n")
	}
	m.Put("</li>\n")
}

func (Work) title() string { return "One moment" }

func (w Work) main(m *markup.Page) {
	m.Printf(`<p>There were many registrations from your address. Your browser computes for some seconds, so that nobody can fill this store.</p>
<form id="work" method="post" action="/get" data-text="%s" data-bits="%d" data-parts="%d">
<input type="hidden" name="site" value="%s"><input type="hidden" name="own" value="%s">
<input type="hidden" name="puzzle"><input type="hidden" name="answer">
<p><progress max="%[3]d" value="0" aria-label="Progress"></progress></p>
</form>
<noscript><p>Your browser runs no scripts here. <a href="/?site=%[6]s">Try again in a minute</a>.</p></noscript>
<script src="%[7]s"></script>
`, w.Puzzle.Text, w.Puzzle.Bits, w.Puzzle.Parts, w.Site, w.Own, url.QueryEscape(w.Site), WorkPath)
}

func (Code) title() string { return "A code for the terminal" }

func (c Code) main(m *markup.Page) {
	m.Printf(`<p>Type this code where <b>heddle pseudonym get</b> asks for it. It is good for ten minutes. Whoever has it gets pseudonyms in your name.</p>
<p><code id="code">%s</code></p>
`, c.Code)
}

func (p Revoke) title() string { return "Revoke your pseudonym of " + p.Site + "?" }

func (p Revoke) main(m *markup.Page) {
	m.Printf(`<p>%s stops working within five seconds, for good. You can get another one.</p>
<form method="post" action="/revoke" class="row"><input type="hidden" name="name" value="%[1]s"><button>Revoke it</button> <a href="/">Keep it</a></form>
`, p.Name)
}

func (t Message) title() string { return t.Title }

func (t Message) main(m *markup.Page) {
	m.Printf("<p>%s</p>\n", t.Text)
	if t.Hint != "" {
		m.Printf(`<p class="soft">%s</p>`, t.Hint)
	}
	m.Put("\n")
}

func (g GoOn) title() string { return "Go on to " + g.Site + "?" }

func (g GoOn) main(m *markup.Page) {
	switch g.Reason {
	case NoPseudonym:
		m.Printf(`<p>You have no pseudonym of %s.</p>
<p><a class="button" href="%s" rel="noreferrer">Get a pseudonym</a></p>
`, g.Site, g.Store)
	case NotTrusted:
		m.Printf(`<p>This link is not from a site that %s trusts. It does not lead to your pseudonym, since whoever made the link could watch for that. If you
have a pseudonym of %[1]s, open its bookmark.</p>
`, g.Site)
	default:
		m.Printf(`<p>Your browser did not show the certificate of this cloud, so the linker does not know you. If you have a pseudonym of %s, open its bookmark. If you have the
certificate, import it and start the browser again.</p>`, g.Site)
	}
	m.Printf(`
<p>Or go on by the plain name. Then the networks on the way see that you visit %s.</p>
<p><a id="plain" href="%s" rel="noreferrer">Go on by the plain name</a></p>
`, g.Site, g.URL)
}
