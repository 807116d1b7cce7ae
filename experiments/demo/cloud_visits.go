package demo

import (
	"context"
	"errors"
	"fmt"
	"html"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"heddle/internal/netutil"
	"heddle/lab"
	"heddle/lab/browser"
	"heddle/lab/peer"
)

// byBrowser visits with Chromium, by the pages of the cloud's store.
type byBrowser struct {
	*cloudStage
	host    *lab.Host
	picture []byte
}

// user makes a new user who trusts certificates.
func (b *byBrowser) user(ctx context.Context, name string, certificates ...string) (*browser.User, error) {
	u, err := browser.NewUser(ctx, filepath.Join(b.work, name))
	if err == nil { // what Chromium asks its maker tells nothing here
		u.Args = []string{"--host-resolver-rules=MAP *.google.com ~NOTFOUND, MAP *.googleapis.com ~NOTFOUND"}
	}
	for _, file := range certificates {
		if err == nil {
			err = u.Trust(ctx, filepath.Base(file), file)
		}
	}
	return u, err
}

func (b *byBrowser) plain(ctx context.Context) error {
	u, err := b.user(ctx, "plain", b.certificates...)
	if err != nil {
		return err
	}
	seen, err := u.Do(ctx, b.host,
		browser.Step{Open: "https://" + newsSite.name + "/", Show: "news"}, browser.Step{Click: linkText, Show: "shop"},
		browser.Step{Open: "https://" + clinicSite.name + "/", Show: "clinic"})
	if err != nil {
		return err
	}
	return b.check(seen)
}

// check fails if the user saw something else than the sites' own pages, which is at the name of the site.
func (b *byBrowser) check(seen map[string]browser.Seen) error {
	for _, site := range cloudSites {
		if p := seen[site.host]; p.Error != "" || p.Title != title(site) {
			return fmt.Errorf("the page of %s: %q, %q, %s", site.name, p.Title, p.Text, p.Error)
		}
	}
	return nil
}

func (b *byBrowser) pseudonyms(ctx context.Context) error {
	u, err := b.user(ctx, "pseudonyms", b.cloud.Root())
	if err != nil {
		return err
	}
	fmt.Fprintln(b.Talk, "  Chromium opens the cloud's store, and gets a pseudonym of", newsSite.name)
	seen, err := u.Do(ctx, b.host, browser.Step{Open: "https://store." + peer.CloudZone + "/"}, browser.Step{Register: newsSite.name, Show: "made"})
	if err != nil {
		return err
	}
	first := seen["made"]
	if err := u.Take(ctx, first); err != nil {
		return err
	}
	const entrance = "your entrance to this store"
	fmt.Fprintln(b.Talk, "  its user imports the certificates, comes back by her pseudonym of the store, and gets two more")
	seen, err = u.Do(ctx, b.host, browser.Step{Open: first.Links[entrance]}, browser.Step{Register: clinicSite.name, Show: clinicSite.host},
		browser.Step{Open: first.Links[entrance]}, browser.Step{Register: shopSite.name, Show: shopSite.host})
	if err != nil {
		return err
	}
	for _, site := range []site{clinicSite, shopSite} {
		if err := u.Take(ctx, seen[site.host]); err != nil {
			return err
		}
	}
	for end := time.Now().Add(learnsWithin); ; {
		at, err := u.Do(ctx, b.host, browser.Step{Open: first.Links[newsSite.name], Show: newsSite.host})
		if err != nil {
			return err
		}
		if strings.HasPrefix(at[newsSite.host].Links[linkText], "https://linker.") {
			break
		}
		if time.Now().After(end) {
			return fmt.Errorf("the page of %s has no link by the linker: %+v", newsSite.name, at)
		}
	}
	fmt.Fprintln(b.Talk, "  she visits", newsSite.name+", follows a link to", shopSite.name+", and visits", clinicSite.name)
	shot := filepath.Join(b.work, "seen.png")
	seen, err = u.Do(ctx, b.host, browser.Step{Open: first.Links[newsSite.name], Show: newsSite.host, Shot: shot}, browser.Step{Click: linkText, Show: shopSite.host},
		browser.Step{Open: seen[clinicSite.host].Links[clinicSite.name], Show: clinicSite.host})
	if err != nil {
		return err
	}
	if err := b.check(seen); err != nil {
		return err
	}
	if at := seen[shopSite.host].URL; !strings.Contains(at, "."+peer.CloudZone+"/") {
		return fmt.Errorf("the link led to %s", at)
	}
	b.picture, err = os.ReadFile(shot)
	return err
}

// byTerminal visits with curl and `heddle pseudonym get`.
type byTerminal struct{ *cloudStage }

// fetch fetches a page and follows no redirect.
func (t *byTerminal) fetch(ctx context.Context, url string, files ...string) (string, error) {
	args := slices.Concat([]string{"--silent", "--show-error", "--fail", "--ipv4", "--max-time", "60"}, files, []string{url})
	out, err := t.curl(ctx, args...).Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		err = fmt.Errorf("curl %s: %w: %s", url, err, exit.Stderr)
	}
	return string(out), err
}

func (t *byTerminal) plain(ctx context.Context) error {
	for i, site := range cloudSites {
		page, err := t.fetch(ctx, "https://"+site.name+"/", "--cacert", t.certificates[i])
		if err == nil {
			err = t.check(site, page)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (t *byTerminal) check(s site, page string) error {
	if !strings.Contains(page, "<title>"+title(s)+"</title>") {
		return fmt.Errorf("the page of %s is %q", s.name, page)
	}
	return nil
}

// learnsWithin is how long sidecars that have just started may take to learn of the other sites, and the store whom they trust.
const learnsWithin = time.Minute

var toLinker = regexp.MustCompile(`href="(https://linker\.[^"]+)"`)

func (t *byTerminal) pseudonyms(ctx context.Context) error {
	own := map[site]peer.Pseudonym{}
	for _, s := range cloudSites {
		fmt.Fprintln(t.Talk, "  heddle pseudonym get", s.name)
		p, err := t.cloud.Get(ctx, "client", s.name, t.get...)
		if err != nil {
			return err
		}
		own[s] = p
	}
	fmt.Fprintln(t.Talk, "  curl visits", newsSite.name+", follows a link to", shopSite.name+", and visits", clinicSite.name)
	var link []string
	for end := time.Now().Add(learnsWithin); link == nil; {
		page, err := t.fetch(ctx, own[newsSite].URL, own[newsSite].Files()...)
		if err == nil {
			err = t.check(newsSite, page)
		}
		if err != nil {
			return err
		}
		if link = toLinker.FindStringSubmatch(page); link == nil && time.Now().After(end) {
			return fmt.Errorf("the page of %s has no link by the linker: %s", newsSite.name, page)
		}
	}
	// The linker wants the certificate of the store's pseudonym.
	store := peer.Pseudonym{Dir: filepath.Join(filepath.Dir(own[newsSite].Dir), "store."+peer.CloudZone)}
	redirected := ""
	for end := time.Now().Add(learnsWithin); !strings.HasPrefix(redirected, "https://"+own[shopSite].Name+"/"); {
		if time.Now().After(end) {
			return fmt.Errorf("the link led to %q", redirected)
		}
		var err error
		redirected, err = t.fetch(ctx, html.UnescapeString(link[1]), append(store.Files(), "--output", os.DevNull, "--write-out", "%{redirect_url}")...)
		if err == nil && redirected == "" {
			err = netutil.Sleep(ctx, 50*time.Millisecond)
		}
		if err != nil {
			return err
		}
	}
	for at, s := range map[string]site{redirected: shopSite, own[clinicSite].URL: clinicSite} {
		page, err := t.fetch(ctx, at, own[s].Files()...)
		if err == nil {
			err = t.check(s, page)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
