package config

import (
	"fmt"
	"net/netip"
	"net/url"
	"slices"

	"golang.org/x/net/http/httpguts"

	"heddle/disguise/cover"
	"heddle/internal/netutil"
)

// DisguiseFront says what web servers are around a bridge: shared by `heddle disguise serve`, `pt` and `torrc`.
type DisguiseFront struct {
	Behind        string `toml:"behind" help:"be behind your own web server, with the cover https: listen for it at <ADDRESS:PORT> or unix:FILE, and nowhere else"`
	VisitorHeader string `toml:"visitor-header" help:"the <HEADER> in which that web server says whose a request is, such as X-Forwarded-For"`
	Origin        string `toml:"origin" help:"be in front of your own site at <URL>, such as http://127.0.0.1:8080: strangers see it"`
	ACME          string `toml:"acme" help:"get the certificate of the cover https from an authority, to whose terms you agree, and keep it in <DIR>" complete:"dir"`
	ACMEAuthority string `toml:"acme-authority" help:"the <URL> of the directory of that authority; without it Let's Encrypt's"`
}

// Doors are where the bridge listens.
func (s DisguiseServe) Doors() (flag string, all []string) {
	if s.Behind != "" {
		return "behind", []string{s.Behind}
	}
	return "listen", s.Listen
}

// front reads how visitors reach the bridge.
func (s DisguiseServe) front(wrong problems) (f cover.Front) {
	if s.Behind != "" {
		f.Behind = true
		s.checkBehind(wrong)
	}
	switch {
	case s.VisitorHeader == "":
	case s.Behind == "":
		wrong.say("visitor-header", "visitors come to the bridge itself, and could say what they like", "it is for behind; leave it out")
	case !httpguts.ValidHeaderFieldName(s.VisitorHeader):
		wrong.say("visitor-header", fmt.Sprintf("%q is no name of a header", s.VisitorHeader), "such as X-Forwarded-For")
	default:
		f.Visitor = s.VisitorHeader
	}
	s.checkACME(wrong)
	if s.ACME != "" {
		f.ACME = &cover.ACME{Dir: s.ACME, Authority: s.ACMEAuthority}
	}
	if s.Origin != "" {
		u, err := url.Parse(s.Origin)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.Path != "" || u.RawQuery != "" || u.Fragment != "" {
			wrong.say("origin", fmt.Sprintf("%q is no address of a web server", s.Origin), "such as http://127.0.0.1:8080, without a path")
			return f
		}
		f.Origin = u
	}
	return f
}

func (s DisguiseServe) checkACME(wrong problems) {
	switch u, err := url.Parse(s.ACMEAuthority); {
	case s.ACMEAuthority == "":
	case s.ACME == "":
		wrong.say("acme-authority", "it is for acme, which says where the certificate is kept", "set acme to a directory")
	case err != nil || u.Scheme != "https" || u.Host == "":
		wrong.say("acme-authority", fmt.Sprintf("%q is no URL with https", s.ACMEAuthority), "such as https://acme.example/directory")
	}
}

// checkBehind refuses addresses that strangers reach: what comes there is not encrypted, and may say of whom it is.
func (s DisguiseServe) checkBehind(wrong problems) {
	if !slices.Equal(s.Listen, DefaultDisguiseServe().Listen) {
		wrong.say("listen", "a bridge behind another web server listens for that alone", "leave out listen or behind")
	}
	if file, unix := netutil.UnixFile(s.Behind); unix {
		if file == "" {
			wrong.say("behind", "unix: names no file", "such as unix:/run/heddle/bridge.sock")
		}
		return
	}
	at, err := netip.ParseAddrPort(s.Behind)
	a := at.Addr().Unmap()
	switch {
	case err != nil:
		wrong.say("behind", fmt.Sprintf("%q is no address and port", s.Behind), "such as 127.0.0.1:8081 or unix:/run/heddle/bridge.sock")
	case !a.IsLoopback() && !a.IsPrivate() && !a.IsLinkLocalUnicast():
		wrong.say("behind", fmt.Sprintf("others than the web server reach %v, where nothing is encrypted", a), "an address of loopback or of a private network, or a Unix socket")
	}
}
