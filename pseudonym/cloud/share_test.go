package cloud

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"heddle/pseudonym/database"
	"heddle/pseudonym/gateway"
	"heddle/pseudonym/gateway/lead"
)

// fakes is held while a fake is used, and before time passes, so that the test may look at all of them when it has passed.
var fakes sync.Mutex

// fakeTable is a switch whose packets a test makes.
type fakeTable struct {
	entries map[ends]lead.Connection
	refuses netip.AddrPort // a client
}

func (f *fakeTable) Lead(client, gateway, tenant netip.AddrPort) error {
	fakes.Lock()
	defer fakes.Unlock()
	if client == f.refuses {
		return errors.New("no")
	}
	f.entries[ends{client, gateway}] = lead.Connection{Client: client, Gateway: gateway, Tenant: tenant, Last: time.Now()}
	return nil
}

func (f *fakeTable) LeadDirect(client, gateway, tenant netip.AddrPort) error {
	fakes.Lock()
	defer fakes.Unlock()
	f.entries[ends{client, gateway}] = lead.Connection{Client: client, Gateway: gateway, Tenant: tenant, Direct: true, Last: time.Now()}
	return nil
}

// indirect is a switch that leads nothing directly.
type indirect struct{ table }

func (f *fakeTable) Each(do func(lead.Connection) error) error {
	fakes.Lock()
	defer fakes.Unlock()
	for of, c := range f.entries {
		if time.Since(c.Last) >= lead.Idle {
			delete(f.entries, of)
		} else if err := do(c); err != nil {
			return err
		}
	}
	return nil
}

func (f *fakeTable) Touch(client, gateway, tenant netip.AddrPort, unless time.Duration) (bool, error) {
	fakes.Lock()
	defer fakes.Unlock()
	c, ok := f.entries[ends{client, gateway}]
	if !ok || c.Tenant != tenant {
		return false, nil
	}
	if time.Since(c.Last) >= unless {
		c.Last = time.Now()
		f.entries[ends{client, gateway}] = c
	}
	return true, nil
}

// packet is one of a client's.
func (f *fakeTable) packet(of ends) {
	fakes.Lock()
	defer fakes.Unlock()
	if c, ok := f.entries[of]; ok {
		c.Last = time.Now()
		f.entries[of] = c
	}
}

// fakeMoves is a database with a clock of its own.
type fakeMoves struct {
	rows map[ends]fakeRow
	down func() error // why it is, or nil
}

type fakeRow struct {
	database.Move
	by   string
	seen time.Time
}

func (f *fakeMoves) fails() error {
	fakes.Lock()
	down := f.down
	fakes.Unlock()
	return down()
}

var errDown = errors.New("the database is down")

func (f *fakeMoves) PutMoves(_ context.Context, by string, all []database.Move) error {
	if err := f.fails(); err != nil {
		return err
	}
	fakes.Lock()
	defer fakes.Unlock()
	for _, m := range all {
		f.rows[ends{m.Client, m.Gateway}] = fakeRow{m, by, f.clock()}
	}
	return nil
}

func (f *fakeMoves) clock() time.Time { return time.Now().Add(-time.Hour).Truncate(time.Second) }

func (f *fakeMoves) Moves(_ context.Context, not string, since time.Time) (all []database.Move, now time.Time, err error) {
	if err := f.fails(); err != nil {
		return nil, now, err
	}
	fakes.Lock()
	defer fakes.Unlock()
	for _, r := range f.rows {
		if r.by != not && !r.seen.Before(since) {
			all = append(all, r.Move)
		}
	}
	return all, f.clock(), nil
}

func (f *fakeMoves) DropMoves(_ context.Context, unseen time.Duration) error {
	fakes.Lock()
	defer fakes.Unlock()
	for of, r := range f.rows {
		if r.seen.Before(f.clock().Add(-unseen)) {
			delete(f.rows, of)
		}
	}
	return nil
}

var (
	shareOne = ends{netip.MustParseAddrPort("198.51.100.2:50000"), netip.MustParseAddrPort("192.0.2.1:443")}
	shareTwo = ends{netip.MustParseAddrPort("[2001:db8::2]:50000"), netip.MustParseAddrPort("[2001:db8::1]:443")}
	tenantA  = netip.MustParseAddrPort("10.9.1.2:443")
	tenantB  = netip.MustParseAddrPort("10.9.2.2:443")
)

// sharing runs a test in a bubble, where no goroutine runs while the test does not wait. join starts a switch.
func sharing(t *testing.T, test func(t *testing.T, db *fakeMoves, log *strings.Builder, join func(*fakeTable) *shared)) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		to := slog.New(slog.NewTextHandler(&log, nil))
		db := &fakeMoves{rows: map[ends]fakeRow{}, down: func() error { return nil }}
		test(t, db, &log, func(f *fakeTable) *shared {
			if f.entries == nil {
				f.entries = map[ends]lead.Connection{}
			}
			s := share(f, db, to)
			t.Cleanup(s.Close)
			synctest.Wait()
			return s
		})
	})
}

// looked orders what the test has done before what the fakes do next.
func looked() {
	fakes.Lock()
	defer fakes.Unlock()
}

// pass lets time pass.
func pass(d time.Duration) {
	looked()
	time.Sleep(d)
	synctest.Wait()
}

// Another switch leads a connection within two seconds, and to another tenant if the client uses its port again. A switch that starts anew learns of
// all.
func TestSwitchesShare(t *testing.T) {
	sharing(t, func(t *testing.T, _ *fakeMoves, log *strings.Builder, join func(*fakeTable) *shared) {
		near, far, late := &fakeTable{}, &fakeTable{}, &fakeTable{}
		first := join(near)
		join(far)
		for _, tenant := range []netip.AddrPort{tenantA, tenantB} {
			if err := first.Lead(shareOne.client, shareOne.gateway, tenant); err != nil {
				t.Fatal(err)
			}
			pass(2 * time.Second)
			if got := far.entries[shareOne].Tenant; got != tenant {
				t.Errorf("the other switch leads it to %v, not %v", got, tenant)
			}
			pass(time.Minute)
		}
		join(late)
		if got := late.entries[shareOne].Tenant; got != tenantB {
			t.Errorf("one that starts leads it to %v", got)
		}
		if log.Len() > 0 {
			t.Error(log)
		}
	})
}

// A connection whose tenant answers directly is led so by others, also after it was noted again, and by none that cannot.
func TestSwitchesShareDirect(t *testing.T) {
	sharing(t, func(t *testing.T, db *fakeMoves, log *strings.Builder, join func(*fakeTable) *shared) {
		near, far, late := &fakeTable{}, &fakeTable{}, &fakeTable{}
		first := join(near)
		join(far)
		if err := first.LeadDirect(shareOne.client, shareOne.gateway, tenantA); err != nil {
			t.Fatal(err)
		}
		pass(2 * time.Second)
		near.packet(shareOne)
		pass(2 * renewEvery)
		join(late)
		for _, f := range []*fakeTable{far, late} {
			if c := f.entries[shareOne]; c.Tenant != tenantA || !c.Direct {
				t.Errorf("another switch leads %+v", c)
			}
		}
		old := &fakeTable{entries: map[ends]lead.Connection{}}
		other := share(indirect{old}, db, slog.New(slog.NewTextHandler(log, nil)))
		t.Cleanup(other.Close)
		synctest.Wait()
		if err := other.LeadDirect(shareTwo.client, shareTwo.gateway, tenantB); !errors.Is(err, gateway.ErrNotDirect) || len(old.entries) > 0 || !strings.Contains(log.String(), "leads no packets to sites that answer directly") {
			t.Errorf("%v; it leads %v\n%s", err, old.entries, log)
		}
	})
}

// A connection lasts at all switches while its packets pass one of them, and ends at all after that.
func TestSharedConnectionLasts(t *testing.T) {
	sharing(t, func(t *testing.T, db *fakeMoves, _ *strings.Builder, join func(*fakeTable) *shared) {
		near, far := &fakeTable{}, &fakeTable{}
		first, second := join(near), join(far)
		if err := first.Lead(shareOne.client, shareOne.gateway, tenantA); err != nil {
			t.Fatal(err)
		}
		for at, passes := range []*fakeTable{near, far, near} { // the other one takes its place, and it comes back
			for range 40 {
				pass(30 * time.Second)
				passes.packet(shareOne)
			}
			for _, f := range []*fakeTable{near, far} {
				if since := time.Since(f.entries[shareOne].Last); since > touchAfter+renewEvery {
					t.Errorf("%d: the last packet was %v ago", at, since)
				}
			}
		}
		pass(lead.Idle + 4*renewEvery)
		if len(near.entries)+len(far.entries)+len(db.rows)+len(first.learnt)+len(second.learnt) > 0 {
			t.Errorf("without packets there are %v, %v, %v, %v and %v", near.entries, far.entries, db.rows, first.learnt, second.learnt)
		}
	})
}

// Two processes of one machine have the same entries, which end as well.
func TestShareOfOneMachine(t *testing.T) {
	sharing(t, func(t *testing.T, db *fakeMoves, _ *strings.Builder, join func(*fakeTable) *shared) {
		both := &fakeTable{}
		first := join(both)
		join(both)
		if err := first.Lead(shareOne.client, shareOne.gateway, tenantA); err != nil {
			t.Fatal(err)
		}
		for range 10 {
			pass(renewEvery)
			both.packet(shareOne)
		}
		pass(lead.Idle + 4*renewEvery)
		if len(both.entries)+len(db.rows) > 0 {
			t.Errorf("without packets there are %v and %v", both.entries, db.rows)
		}
	})
}

// While the database is down connections are led, and noted later. One that a switch refuses keeps it from no other.
func TestSharingFails(t *testing.T) {
	sharing(t, func(t *testing.T, db *fakeMoves, log *strings.Builder, join func(*fakeTable) *shared) {
		near, far := &fakeTable{}, &fakeTable{refuses: shareTwo.client}
		first := join(near)
		join(far)
		db.down = func() error { return errDown }
		for _, of := range []ends{shareTwo, shareOne} {
			if err := first.Lead(of.client, of.gateway, tenantA); err != nil {
				t.Fatal(err)
			}
			pass(5 * time.Second)
		}
		if n := strings.Count(log.String(), errDown.Error()); n != 2 { // one for each switch
			t.Errorf("the log says it %d times:\n%s", n, log.String())
		}
		db.down = func() error { // it fails once more, while the client uses its port again
			fakes.Lock()
			db.down = func() error { return nil }
			fakes.Unlock()
			return errors.Join(errDown, first.Lead(shareOne.client, shareOne.gateway, tenantB))
		}
		pass(3 * time.Second)
		if len(near.entries) != 2 || far.entries[shareOne].Tenant != tenantB {
			t.Errorf("%v; %v", near.entries, far.entries)
		}
	})
}
