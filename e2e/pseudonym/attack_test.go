package pseudonym

import (
	"fmt"
	"strings"
	"testing"
)

// A page of one tenant finds out nothing about a visitor's pseudonym of another one, even if it knows that name and the browser has the objects
// in its cache (requirement R5). The zone is not on the public suffix list, so both are of the same site for the browser.
func TestCrossOriginAttacks(t *testing.T) {
	for _, strategy := range []string{"none", "pieces"} {
		t.Run(strategy, func(t *testing.T) { attack(t, strategy) })
	}
}

func attack(t *testing.T, strategy string) {
	w, defended := newWorld(t, "--defence", strategy), strategy != "none"
	c := w.chromium()
	c.Scripts = true
	made, to := c.register()
	exchanges := c.logNet()
	seen := c.do(
		step{Open: to(news, "/rich.html"), Title: "loaded"},
		step{Open: to(news, "/framed.html"), Title: "loaded"},
		step{Open: to(shop, "/attack.html") + "#" + host(made[news].Links[news]), Title: "attack: ", Show: "other"},
		step{Open: to(news, "/page.html"), Show: "after"},
		step{Open: to(shop, "/attack.html") + "#" + host(made[shop].Links[shop]), Title: "attack: ", Show: "shop"},
		step{Open: to(news, "/attack.html") + "#" + host(made[news].Links[news]), Title: "attack: ", Show: "own"},
	)
	const kinds = "image script style font readable opaque cache import worker service frame plain sizes timing"
	own, other, site := seen["own"].Title, seen["other"].Title, seen["shop"].Title
	for kind := range strings.FieldsSeq(kinds) {
		if !strings.Contains(other, kind+" refused") {
			t.Errorf("%s: %s", kind, other)
		}
		visible := own
		switch {
		case kind == "plain" && !defended: // there is no such page
			continue
		case kind == "service" && defended: // a site with the defence has no other worker, and nor would a script of its own be one
			visible = site
			if !strings.Contains(own, kind+" refused") {
				t.Errorf("a worker beside that of the defence: %s", own)
			}
		}
		if strings.Contains(visible, kind+" refused") {
			t.Errorf("the page that tries cannot see a difference for %s: %s", kind, visible)
		}
	}
	if after := seen["after"]; strings.TrimSpace(after.Text) != "hidden" || after.Worker != defended {
		t.Errorf("after the attack: %+v", after)
	}
	all, victim := exchanges(), host(made[news].Links[news])
	for _, e := range all {
		if defended && e.host == victim && strings.HasPrefix(e.path, "/page.html") && e.answered["heddle-piece"] == "" {
			t.Errorf("the attack turned the page defence off: %v", e)
		}
	}
	refusedAlike(t, all, victim)
}

// refusedAlike checks what Chromium asked of a pseudonym for pages of another one: a cache answered nothing, the worker of the page defence asked for
// nothing, and all answers are the same, whether the object is there or not. So the time until an answer is there tells nothing of it. Chromium may leave an
// answer that it refuses before the body comes, of which the headers have the length.
func refusedAlike(t *testing.T, all []*exchange, host string) {
	t.Helper()
	asked, alike, bodies := map[string]int{}, map[string]bool{}, map[int]bool{}
	for _, e := range all {
		if e.host == host && e.asked["sec-fetch-site"] == "same-site" {
			asked[e.path]++
			delete(e.answered, "date")
			alike[fmt.Sprint(e.answered, e.asked["heddle-piece"])] = true
			if !e.left || e.bytes > 0 {
				bodies[e.bytes] = true
			}
		}
	}
	for path, least := range map[string]int{"/rich.svg": 1, "/rich.js": 3, "/rich.css": 1, "/rich.ttf": 1, "/rich.json": 1, "/rich.txt": 3, "/absent.txt": 1, "/rich-module.js": 1, "/framed.html": 1} {
		if asked[path] < least {
			t.Errorf("pages of another site had %d requests for %s sent", asked[path], path)
		}
	}
	if len(alike) != 1 || len(bodies) != 1 || !strings.Contains(fmt.Sprint(alike), ":status:404") || !strings.Contains(fmt.Sprint(alike), "content-length:") {
		t.Errorf("answers differ: %v, with bodies of %v bytes", alike, bodies)
	}
}
