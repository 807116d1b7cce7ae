package mptcp

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestHello(t *testing.T) {
	for _, h := range []hello{{paths: 1, min: 1}, {paths: 9, min: 2, degrade: true, service: strings.Repeat("x", 255)}} {
		if got, err := readHello(bytes.NewReader(h.encode())); err != nil || got != h {
			t.Errorf("%+v: %+v, %v", h, got, err)
		}
	}
	for name, raw := range map[string]string{
		"no path": "\x00\x00\x00\x00", "none required": "\x02\x00\x00\x00", "more required than there are": "\x02\x03\x00\x00",
		"too many": "\x0a\x01\x00\x00", "an unknown flag": "\x01\x01\x02\x00", "short": "\x01\x01\x00", "half a service": "\x01\x01\x00\x05abc",
	} {
		if h, err := readHello(strings.NewReader(raw)); err == nil {
			t.Errorf("%s: %+v", name, h)
		}
	}
}

func TestAnswer(t *testing.T) {
	if err := readAnswer(bytes.NewReader([]byte{answerWelcome})); err != nil {
		t.Error(err)
	}
	long := encodeRefusal(strings.Repeat("long", 100))
	if refusal, ok := errors.AsType[*Refusal](readAnswer(bytes.NewReader(long))); !ok || len(refusal.Why) != 255 {
		t.Errorf("%v", refusal)
	}
	for _, raw := range []string{"", "\x01", "\x01\x05abc", "\x07\x00"} {
		if err := readAnswer(strings.NewReader(raw)); err == nil {
			t.Errorf("%q is a welcome", raw)
		}
	}
}

func FuzzIntroduction(f *testing.F) {
	f.Add(hello{paths: 3, min: 2, degrade: true, service: "files"}.encode())
	f.Add(encodeRefusal("no"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if h, err := readHello(bytes.NewReader(raw)); err == nil && !bytes.HasPrefix(raw, h.encode()) {
			t.Errorf("%x was read as %+v", raw, h)
		}
		if refusal, ok := errors.AsType[*Refusal](readAnswer(bytes.NewReader(raw))); ok &&
			(!utf8.ValidString(refusal.Why) || strings.ContainsAny(refusal.Why, "\x1b\n\r\x00\x7f")) {
			t.Errorf("%x was read as %q", raw, refusal.Why)
		}
	})
}
