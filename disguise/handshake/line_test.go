package handshake

import (
	"bytes"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"heddle/internal/errhint"
)

func exampleLine(t testing.TB) Line {
	_, key := bridge(t, 1, new(Replays))
	return Line{netip.MustParseAddrPort("192.0.2.7:443"), strings.Repeat("0A", 20), Args{key, []byte("secret"), []string{"random", "embed"}}}
}

func TestLine(t *testing.T) {
	whole := exampleLine(t)
	for _, change := range []func(l *Line){
		func(*Line) {},
		func(l *Line) { l.Fingerprint, l.Token, l.Covers = "", nil, nil },
		func(l *Line) { l.Address = netip.MustParseAddrPort("[2001:db8::1]:443") },
		func(l *Line) { l.Covers = []string{"random:prefix=printable", "embed"} },
		func(l *Line) { l.Token = bytes.Repeat([]byte{255}, MaxToken) },
	} {
		l := whole
		change(&l)
		text := l.String()
		back, err := ParseLine(text)
		if err != nil || !reflect.DeepEqual(back, l) {
			t.Errorf("%s\n%v: %v", text, back, err)
		}
		for _, same := range []string{strings.TrimPrefix(text, "Bridge "), strings.TrimPrefix(text, "Bridge heddle "), "\t" + text + " \n",
			strings.ReplaceAll(text, " ", "  "), strings.ReplaceAll(text, "0A", "0a")} {
			if again, err := ParseLine(same); err != nil || !reflect.DeepEqual(again, l) {
				t.Errorf("%q: %v, %v", same, again, err)
			}
		}
		if len(text)-strings.Index(text, "key=") != len("key=")+48 {
			t.Errorf("key= is not last: %s", text)
		}
	}
	order := strings.Fields(whole.String())
	order[4], order[6] = order[6], order[4]
	if again, err := ParseLine(strings.Join(order, " ")); err != nil || !reflect.DeepEqual(again, whole) {
		t.Errorf("in another order: %v", err)
	}
}

// A line that lost its end, or has a wrong character in its key or token, never passes for another one.
func TestDamagedLine(t *testing.T) {
	text := exampleLine(t).String()
	for cut := range len(text) {
		if l, err := ParseLine(text[:cut]); err == nil {
			t.Errorf("%q is %v", text[:cut], l)
		}
	}
	for at := strings.Index(text, "token="); at < len(text); at++ {
		for _, other := range []byte("aZ7-_= ") {
			if other == text[at] {
				continue
			}
			if l, err := ParseLine(text[:at] + string(other) + text[at+1:]); err == nil {
				t.Errorf("with %q at %d: %v", other, at, l)
			} else if strings.Contains(err.Error(), "c2VjcmV0") {
				t.Errorf("an error shows the token: %v", err)
			}
		}
	}
}

func TestWrongLines(t *testing.T) {
	whole := exampleLine(t).String()
	for name, c := range map[string]struct{ text, why, hint string }{
		"empty":       {"", "no address", "a line is"},
		"words only":  {"Bridge heddle", "no address", "a line is"},
		"obfs4":       {"Bridge obfs4 192.0.2.7:443 cert=x", `"obfs4" is no address`, "brackets"},
		"no address":  {strings.Replace(whole, "192.0.2.7:443 "+strings.Repeat("0A", 20), "", 1), "no address", "a line is"},
		"name":        {strings.Replace(whole, "192.0.2.7", "bridge.example", 1), "no address", "names"},
		"no brackets": {strings.Replace(whole, "192.0.2.7", "2001:db8::1", 1), "no address", "brackets"},
		"zone":        {strings.Replace(whole, "192.0.2.7", "[fe80::1%eth0]", 1), "cannot reach", "reach"},
		"any":         {strings.Replace(whole, "192.0.2.7", "0.0.0.0", 1), "cannot reach", "reach"},
		"port":        {strings.Replace(whole, ":443", ":0", 1), "cannot reach", "reach"},
		"fingerprint": {strings.Replace(whole, "0A0A", "0A", 1), "fingerprint", "a line is"},
		"unknown":     {whole + " iat-mode=1", `"iat-mode=" is unknown`, "update"},
		"no value":    {whole + " more", "argument 4 is no NAME=VALUE", "a line is"},
		"twice":       {whole + " covers=embed", "covers= is there 2 times", "a line is"},
		"empty value": {strings.Replace(whole, "covers=random,embed", "covers=", 1), "covers= is empty", "copy"},
		"cover":       {strings.Replace(whole, "random,embed", "random,", 1), "is no cover", "a line is"},
		"cover twice": {strings.Replace(whole, "random,embed", "embed,embed", 1), "there twice", "a line is"},
		"cut key":     {whole[:len(whole)-3], "key= is cut: it has 45 characters of 48", "copy"},
		"long key":    {whole + "A", "too long", "copy"},
		"wrong key":   {whole[:len(whole)-1] + "=", "wrong character", "copy"},
		"other key":   {strings.Replace(whole, "key=A", "key=A", 1)[:len(whole)-9] + "AAAAAAAAA", "check of key=", "copy"},
		"other token": {strings.Replace(whole, "c2VjcmV0", "c2VjcmV1", 1), "check of key=", "copy"},
		"no token":    {strings.Replace(whole, "token=c2VjcmV0", "", 1), "check of key=", "copy"},
		"bad token":   {strings.Replace(whole, "c2VjcmV0", "c2VjcmV0A", 1), "token= is not", "copy"},
		"long token":  {strings.Replace(whole, "c2VjcmV0", strings.Repeat("A", 200), 1), "token= is not", "copy"},
		"no key":      {whole[:strings.Index(whole, "key=")], "no key=", "copy"},
		"version":     {strings.Replace(whole, "key=A", "key=B", 1), "of version 5", "update Heddle"},
		"endless":     {whole + strings.Repeat(" ", maxLine), "bytes", "a line is"},
	} {
		_, err := ParseLine(c.text)
		if err == nil || !strings.Contains(err.Error(), c.why) || !strings.Contains(errhint.Of(err), c.hint) {
			t.Errorf("%s: %v; %s", name, err, errhint.Of(err))
		}
	}
}

func FuzzLine(f *testing.F) {
	f.Add(exampleLine(f).String())
	f.Add("[2001:db8::1]:443 key=AQ")
	f.Fuzz(func(t *testing.T, text string) {
		l, err := ParseLine(text)
		if err != nil {
			return
		}
		again, err := ParseLine(l.String())
		if err != nil || !reflect.DeepEqual(again, l) {
			t.Errorf("%q\n%v\n%v: %v", text, l, again, err)
		}
	})
}
