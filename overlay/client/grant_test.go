package client

import (
	"encoding/base64"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"heddle/identity"
)

func fresh(t testing.TB) identity.Identity {
	t.Helper()
	id, err := identity.New()
	if err != nil {
		t.Fatal(err)
	}
	return id
}

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func issue(t testing.TB, grantor identity.Identity, g Grant) Signed {
	t.Helper()
	if g.Modes == nil {
		g.Modes = []string{ModeForward}
	}
	if g.From.IsZero() {
		g.From, g.Until = noon, noon.Add(time.Hour)
	}
	s, err := Issue(grantor, g)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestVerifyTellsWhy(t *testing.T) {
	grantor, holder, node, other := fresh(t), fresh(t), fresh(t), fresh(t)
	good := issue(t, grantor, Grant{Holder: holder.Key(), Nodes: []identity.Key{node.Key()}})
	// The same body, signed by somebody else who says to be the grantor.
	stranger := issue(t, other, good.Grant)
	raw, _ := base64.RawURLEncoding.DecodeString(strings.TrimPrefix(stranger.String(), grantPrefix))
	forged, err := ParseGrant(grantPrefix + base64.RawURLEncoding.EncodeToString(slices.Concat(grantor.Key().Bytes(), raw[keySize:])))
	if err != nil {
		t.Fatal(err)
	}
	use := Use{Now: noon, Node: node.Key(), Holder: holder.Key(), Grantors: []identity.Key{grantor.Key()}}
	with := func(change func(*Use)) Use {
		u := use
		change(&u)
		return u
	}
	for name, c := range map[string]struct {
		grant Signed
		use   Use
		want  Reason
	}{
		"right":               {good, use, ""},
		"just before":         {good, with(func(u *Use) { u.Now = noon.Add(-leeway) }), ""},
		"an hour before":      {good, with(func(u *Use) { u.Now = noon.Add(-time.Hour) }), ReasonEarly},
		"last second":         {good, with(func(u *Use) { u.Now = noon.Add(time.Hour - time.Second) }), ""},
		"the end":             {good, with(func(u *Use) { u.Now = noon.Add(time.Hour) }), ReasonExpired},
		"another's":           {good, with(func(u *Use) { u.Holder = other.Key() }), ReasonHolder},
		"nobody's":            {good, with(func(u *Use) { u.Holder = identity.Key{} }), ReasonHolder},
		"for another node":    {good, with(func(u *Use) { u.Node = other.Key() }), ReasonNode},
		"no such grantor":     {good, with(func(u *Use) { u.Grantors = []identity.Key{other.Key()} }), ReasonGrantor},
		"no grantor":          {good, with(func(u *Use) { u.Grantors = nil }), ReasonGrantor},
		"by a stranger":       {stranger, use, ReasonGrantor},
		"forged":              {forged, use, ReasonForged},
		"none":                {Signed{}, use, ReasonGrantor},
		"for all of the kind": {issue(t, grantor, Grant{Holder: holder.Key()}), with(func(u *Use) { u.Node = other.Key() }), ""},
	} {
		why := c.grant.Verify(c.use)
		got := Reason("")
		if why != nil {
			got = why.Reason
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// No character of a grant can be another one.
func TestChangedGrantIsRefused(t *testing.T) {
	grantor, holder := fresh(t), fresh(t)
	text := issue(t, grantor, Grant{Holder: holder.Key(), Bytes: 1000}).String()
	for i := len(grantPrefix); i < len(text); i++ {
		changed := []byte(text)
		changed[i] = map[bool]byte{true: 'B', false: 'A'}[changed[i] == 'A']
		s, err := ParseGrant(string(changed))
		if err == nil && s.Verify(Use{Now: noon, Holder: holder.Key(), Grantors: []identity.Key{grantor.Key()}}) == nil {
			t.Fatalf("character %d can be another", i)
		}
	}
}

func TestIssueRefusesWhatMeansNothing(t *testing.T) {
	grantor, holder := fresh(t), fresh(t).Key()
	for name, g := range map[string]Grant{
		"no holder":     {From: noon, Until: noon.Add(1e12), Modes: []string{ModeForward}},
		"ends first":    {Holder: holder, From: noon, Until: noon, Modes: []string{ModeForward}},
		"for nothing":   {Holder: holder, From: noon, Until: noon.Add(1e12)},
		"unknown mode":  {Holder: holder, From: noon, Until: noon.Add(1e12), Modes: []string{"root"}},
		"no bytes":      {Holder: holder, From: noon, Until: noon.Add(1e12), Modes: []string{ModeForward}, Bytes: -1},
		"no place":      {Holder: holder, From: noon, Until: noon.Add(1e12), Modes: []string{ModeForward}, To: []string{"10.0.0.0/33"}},
		"bad id":        {ID: "xyz", Holder: holder, From: noon, Until: noon.Add(1e12), Modes: []string{ModeForward}},
		"nobody's node": {Holder: holder, Nodes: []identity.Key{{}}, From: noon, Until: noon.Add(1e12), Modes: []string{ModeForward}},
		"too long":      {Holder: holder, From: noon, Until: noon.Add(1e12), Modes: []string{ModeForward}, To: slices.Repeat([]string{"192.0.2.255/32"}, 300)},
	} {
		if s, err := Issue(grantor, g); err == nil {
			t.Errorf("%s: %v", name, s.Grant)
		}
	}
}

func FuzzParseGrant(f *testing.F) {
	id := fresh(f)
	f.Add(issue(f, id, Grant{Holder: id.Key(), To: []string{"192.0.2.0/24:443", "www.example.org:443"}, Bytes: 5}).String())
	f.Add("heddle-grant:")
	f.Add(grantPrefix + base64.RawURLEncoding.EncodeToString(append(make([]byte, keySize+signature), `{"id":"","holder":"","from":"0001-01-01T00:00:00Z","until":"0001-01-01T00:00:00Z","modes":null}`...)))
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ParseGrant(text)
		if err != nil {
			return
		}
		if s.String() != text {
			t.Errorf("%q was read as %q", text, s)
		}
		if err := s.Grant.check(); err != nil {
			t.Error(err)
		}
		if len(s.Grant.Destinations()) != len(s.Grant.To) {
			t.Error("a limit was lost")
		}
		if why := s.Verify(Use{Now: s.Grant.From, Holder: s.Grant.Holder, Grantors: []identity.Key{s.Grantor}}); why == nil && !s.signed() {
			t.Error("taken without a signature")
		}
	})
}

func TestParseDestination(t *testing.T) {
	for text, want := range map[string]bool{
		"192.0.2.0/24": true, "192.0.2.1": true, "192.0.2.1:443": true, "192.0.2.0/24:443": true, "2001:db8::/32": true, "2001:db8::1": true,
		"[2001:db8::/32]:443": true, "[2001:db8::1]:443": true, "www.example.org:443": true, "0.0.0.0/0": true,
		"": false, ":443": false, "www.example.org": false, "www.example.org:0": false, "192.0.2.1:70000": false, "192.0.2.1:+1": false, "fe80::1%eth0": false,
		"::ffff:192.0.2.1": false, "[2001:db8::1]": false, "[2001:db8::1": false, "a b:1": false, "192.0.2.0/33:1": false, "www.example.org:443:1": false,
	} {
		if d, err := ParseDestination(text); (err == nil) != want {
			t.Errorf("%q: %+v, %v", text, d, err)
		}
	}
}

func FuzzParseDestination(f *testing.F) {
	f.Add("[2001:db8::/32]:443")
	f.Add("www.example.org:443")
	f.Fuzz(func(t *testing.T, text string) {
		d, err := ParseDestination(text)
		if err == nil && (d.Name == "") != d.Prefix.IsValid() {
			t.Errorf("%q is %+v", text, d)
		}
		if err == nil && d.Name != "" && d.Port == 0 {
			t.Errorf("%q is a whole machine", text)
		}
	})
}

// What a node says is read as it was meant, and can harm no terminal.
func TestRefusalTravels(t *testing.T) {
	for _, reason := range Reasons() {
		h := http.Header{}
		sent := &Refusal{Reason: reason, Detail: "so it is"}
		sent.SetHeader(h)
		h.Set("Date", noon.Add(time.Hour).Format(http.TimeFormat))
		got := refusalOf(sent.Status(), h, noon)
		if got.Reason != reason || got.Detail != "so it is" || got.Skew != time.Hour || got.Error() == "" || got.HintText() == "" {
			t.Errorf("%s: %+v: %v (%s)", reason, got, got, got.HintText())
		}
	}
	late := refusalOf(403, http.Header{"Heddle-Refused": {"expired"}, "Date": {noon.Add(time.Hour).Format(http.TimeFormat)}}, noon)
	if !strings.Contains(late.Error(), "1h0m0s ahead of this device's") || !strings.Contains(late.HintText(), "clock") {
		t.Errorf("an hour's difference: %v (%s)", late, late.HintText())
	}
	hostile := refusalOf(403, http.Header{"Heddle-Refused": {"expired \x1b[2J\xff" + strings.Repeat("x", 1000)}}, noon)
	if text := hostile.Error(); strings.Contains(text, "\x1b") || strings.Contains(text, "\xff") || len(text) > 400 {
		t.Errorf("%q", text)
	}
	if unknown := refusalOf(418, http.Header{}, noon); unknown.Reason != ReasonFailed {
		t.Errorf("%v", unknown)
	}
}
