package ca_test

import (
	"errors"
	"testing"
	"time"

	"heddle/pseudonym/ca"
	"heddle/pseudonym/ca/catest"
)

// A certificate that is signed while the clock is ahead is also valid once the clock is right. Outside the time of the issuing certificate nothing is signed.
func TestClock(t *testing.T) {
	issuer, _ := catest.NewIssuer(t, "cloud.example")
	now, key := time.Now(), catest.NewKey(t)
	for _, ahead := range []time.Duration{0, 400 * 24 * time.Hour} {
		at := now.Add(ahead)
		c, err := issuer.Server("a.cloud.example", key.Public(), at, at.Add(90*24*time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		if c.NotBefore.After(now) || c.NotAfter.Sub(c.NotBefore) > 825*24*time.Hour {
			t.Errorf("%v ahead: from %v to %v", ahead, c.NotBefore, c.NotAfter)
		}
	}
	for _, at := range []time.Time{time.Unix(0, 0), issuer.Until().Add(time.Second)} {
		if _, err := issuer.Server("a.cloud.example", key.Public(), at, at.Add(time.Hour)); !errors.Is(err, ca.ErrClock) {
			t.Errorf("at %v: %v", at, err)
		}
	}
}
