package path

import (
	"net/netip"
	"testing"
	"time"

	"heddle/internal/nstest"
)

func TestWatchedPathsAskOnlyAfterAChange(t *testing.T) {
	w := newTwoWays(t)
	w.client.Enter(t)
	watch, err := NewWatch()
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Close()
	to := netip.AddrPortFrom(w.at, 9)
	var flows []Flow
	var all []Path
	for _, text := range []string{"a=if:a", "b=src:10.0.1.2", "c=ports:a", "d=if:absent"} {
		spec, err := ParseSpec(text)
		if err != nil {
			t.Fatal(err)
		}
		p, err := New(spec, Options{})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
		if flow, err := Open(t.Context(), p, to); err == nil {
			defer flow.Close()
			flows = append(flows, flow)
		} else if text != "d=if:absent" {
			t.Fatal(err)
		}
	}
	look := func() (failed int) {
		for _, f := range flows {
			if f.(Checker).Check() != nil {
				failed++
			}
			if r, ok := f.(Rotator); ok && failed == 0 {
				if err := r.Rotate(); err != nil {
					t.Error(err)
				}
			}
		}
		for _, p := range all {
			p.Describe()
		}
		if flow, err := Open(t.Context(), all[3], to); err == nil {
			flow.Close()
			t.Error("a path without its device opened")
		}
		return failed
	}
	// The kernel may still have to say how it set the devices up, so only rounds count in which it says nothing.
	end := time.Now().Add(20 * time.Second)
	for quiet := 0; quiet < 20; {
		before := Questions()
		n := look()
		asked := Questions() - before
		switch {
		case n > 0:
			t.Fatalf("%d paths fail", n)
		case watch.Changed():
			quiet = 0
		case asked > 0 && quiet > 0:
			t.Fatalf("%d questions although nothing changed", asked)
		default:
			quiet++
		}
		if time.Now().After(end) {
			t.Fatal("something changes all the time")
		}
	}
	if err := nstest.SetUp("a", false); err != nil {
		t.Fatal(err)
	}
	if n := look(); n != 3 {
		t.Errorf("%d paths of 3 fail at once when their device went down", n)
	}
	if !watch.Changed() || watch.Changed() {
		t.Error("the watch does not tell the change once")
	}
}

func TestWatchesOfANamespaceShareOneSocket(t *testing.T) {
	n := nstest.New(t)
	n.Enter(t)
	first, err := NewWatch()
	if err != nil {
		t.Fatal(err)
	}
	second, err := NewWatch()
	if err != nil {
		t.Fatal(err)
	}
	if first.machine != second.machine {
		t.Error("two watches have two sockets")
	}
	nstest.New(t).Do(t, func() error {
		third, err := NewWatch()
		if err != nil {
			return err
		}
		if third.machine == first.machine {
			t.Error("a watch hears another namespace")
		}
		return third.Close()
	})
	first.Close()
	first.Close()
	if second.Changed() {
		t.Error("it changed")
	}
	if err := nstest.Address("lo", "10.9.9.9/32"); err != nil {
		t.Fatal(err)
	}
	if !second.Changed() {
		t.Error("the second watch ended with the first")
	}
	second.Close()
	if watchedHere() != nil {
		t.Error("something is remembered though nobody watches")
	}
}
