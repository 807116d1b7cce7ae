package pseudonym

import (
	"fmt"
	"strings"
	"testing"

	"heddle/lab/browser"
)

// The pages of the store and the linker fit a phone, in light and in dark: nothing is wider than the window, what one touches is large enough, text
// stands out, and no word is broken.
func TestPagesOnAPhone(t *testing.T) {
	w := newWorld(t)
	c := w.chromium()
	c.Width = 360
	store := "https://store." + zone + "/"
	look := func(shown string, s step) step {
		s.Look, s.Show, s.Shot = true, shown, fmt.Sprintf("phone-%s-%t.png", shown, c.Dark)
		return s
	}
	papers := map[string]string{}
	check := func(seen map[string]page) {
		t.Helper()
		for name, p := range seen {
			if p.Error != "" {
				t.Errorf("%s: %s", name, p.Error)
			}
			if l := p.Look; l.Wider > 0 || l.Contrast < 4.5 || len(l.Small) > 0 || len(l.Broken) > 0 || l.Paper == "" {
				t.Errorf("%s, dark %t: %+v", name, c.Dark, l)
			}
			if other, ok := papers[name]; ok && other == p.Look.Paper {
				t.Errorf("%s looks the same in dark: %s", name, other)
			}
			papers[name] = p.Look.Paper
		}
	}
	first := c.do(look("home", step{Open: store}), look("made", step{Register: news}))
	check(first)
	c.take(first["made"])
	entrance := first["made"].Links["your entrance to this store"]
	pages := func() []step {
		return []step{
			look("list", step{Open: entrance}),
			look("revoke", step{Click: "Revoke the pseudonym of " + news}),
			{Open: entrance},
			look("message", step{Register: "nobody.example"}),
			{Open: strings.Replace(first["made"].Links[news], "/?", "/links.html?", 1)},
			look("linker", step{Click: "to the shop"}),
		}
	}
	w.awaitLinks()
	check(c.do(pages()...))
	c.Dark = true
	check(c.do(append(pages(), look("home", step{Open: store}), look("made", step{Register: shop}))...))
	if len(papers) != 6 {
		t.Errorf("pages: %v", papers)
	}
}

// A user without a mouse registers, and revokes. Each key leads to a control that she sees.
func TestPagesByKeyboard(t *testing.T) {
	w := newWorld(t)
	c := w.chromium()
	tab := func(n int) []string { return strings.Fields(strings.Repeat("Tab ", n)) }
	check := func(name string, got []browser.Focus, want ...string) {
		t.Helper()
		if len(got) != len(want) {
			t.Fatalf("%s: %v", name, got)
		}
		for i, f := range got {
			if !f.Visible || !strings.HasPrefix(f.Name, want[i]) {
				t.Errorf("%s: key %d leads to %+v, not to %s", name, i, f, want[i])
			}
		}
	}
	seen := c.do(
		step{Open: "https://store." + zone + "/", Keys: tab(1), Type: news, Show: "home"},
		step{Keys: tab(2), Show: "form"},
		step{Keys: []string{"Shift+Tab"}, Press: "Enter", Show: "made"},
	)
	check("home", seen["home"].Focus, "Site")
	check("form", seen["form"].Focus, "Get a pseudonym", "Also get a pseudonym of this store")
	made := seen["made"]
	if made.Links[news] == "" || len(made.Files) != 2 {
		t.Fatalf("%+v", made)
	}
	c.take(made)
	entrance := made.Links["your entrance to this store"]
	// Of pseudonyms that were made in one second, either may come first.
	want := []string{"Site", "Get a pseudonym", "Your pseudonyms"}
	shown := c.do(step{Open: entrance, Show: "list"})["list"].Text
	if own := "store." + zone; strings.Index(shown, own) < strings.Index(shown, news) {
		want = append(want, "", "Renew the pseudonym of "+own, "Revoke the pseudonym of "+own)
	}
	want = append(want, host(made.Links[news]), "Renew the pseudonym of "+news, "Revoke the pseudonym of "+news)
	seen = c.do(
		step{Open: entrance, Keys: tab(len(want)), Show: "list"},
		step{Press: "Enter"},
		step{Keys: tab(1), Press: "Enter", Show: "revoked"},
	)
	check("list", seen["list"].Focus, want...)
	check("revoke", seen["revoked"].Focus, "Revoke it")
	if strings.Contains(seen["revoked"].Text, host(made.Links[news])) {
		t.Errorf("%+v", seen["revoked"])
	}
}
