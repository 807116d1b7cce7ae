package pseudonym

import (
	"net/url"
	"strings"
	"testing"
)

// While the zone is not on the public suffix list, a page of one tenant can set cookies for all. None of them passes for a cookie of the sidecar: it
// neither keeps a user out, nor lets her in, nor turns the page defence off.
func TestTossedCookies(t *testing.T) {
	w := newWorld(t, "--defence", "pieces")
	var users [2]*chromium
	for i := range users {
		users[i] = w.chromium()
		users[i].Scripts = true
	}
	links := map[string]string{}
	for _, site := range []string{news, shop} {
		made := users[0].do(step{Open: "https://store." + zone + "/"}, step{Register: site, Show: "made"})["made"]
		for _, u := range users {
			u.take(made)
		}
		links[site] = made.Links[site]
	}
	to := func(site, path string) string { return strings.Replace(links[site], "/?", path+"?", 1) }
	bare := "https://" + host(links[news]) + "/page.html"
	right := must(url.Parse(links[news])).Query().Get("pseudonym")
	toss := func(value string) step {
		return step{Open: to(shop, "/cookies.html") + "#" + value, Title: "tossed: ", Show: "tossed"}
	}

	seen := users[0].do(step{Open: to(news, "/framed.html"), Title: "loaded"}, toss(strings.Repeat("a", len(right))), step{Open: bare, Show: "kept"},
		step{Open: to(news, "/cookies.html"), Title: "tossed: ", Show: "got"})
	if kept := seen["kept"]; strings.TrimSpace(kept.Text) != "hidden" || !kept.Worker {
		t.Errorf("with the cookies of another tenant: %+v", kept)
	}
	for _, name := range []string{"tossed", "got"} {
		if !strings.Contains(seen[name].Title, "tossed=2") {
			t.Errorf("the page cannot set cookies for the zone: %s", seen[name].Title)
		}
	}
	// Not even with the right value, which a page of another tenant does not know.
	seen = users[1].do(toss(right), step{Open: bare, Show: "forged"}, step{Open: to(news, "/framed.html"), Title: "loaded"}, step{Open: bare, Show: "then"})
	if forged := seen["forged"]; !strings.Contains(forged.Text, "404") {
		t.Errorf("by a cookie that another tenant set: %+v; it set %s", forged, seen["tossed"].Title)
	}
	if then := seen["then"]; strings.TrimSpace(then.Text) != "hidden" || !then.Worker {
		t.Errorf("by the link: %+v", then)
	}
}
