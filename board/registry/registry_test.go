package registry

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"heddle/board"
	"heddle/board/space"
	"heddle/identity"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// table is a board without a network: a space, and one who uses it.
type table struct {
	mu    sync.Mutex // of one who uses it
	space *space.Space
	who   identity.Identity
	down  error // what every request fails with
	now   func() time.Time
}

func fresh(t *testing.T) identity.Identity {
	t.Helper()
	id, err := identity.New()
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func newTable(t *testing.T) *table {
	t.Helper()
	s, err := space.New(space.Config{Name: space.ID{1}, Limits: space.DefaultLimits()})
	if err != nil {
		t.Fatal(err)
	}
	return &table{space: s, who: fresh(t), now: time.Now}
}

// as is the same board, used by another.
func (b *table) as(who identity.Identity) *table {
	return &table{space: b.space, who: who, down: b.down, now: b.now}
}

// fail makes every request fail, or none with nil.
func (b *table) fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.down = err
}

func (b *table) do(op space.Op) (space.Result, space.ID, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.down != nil {
		return space.Result{}, space.ID{}, b.down
	}
	op.Space = space.ID{1}
	signed, err := op.Sign(b.who, b.now())
	if err != nil {
		return space.Result{}, space.ID{}, err
	}
	r := b.space.Apply(b.now(), signed)
	if r.Status != space.OK {
		return r, space.ID{}, &board.Refusal{Verb: op.Verb.String(), Result: r}
	}
	return r, signed.ID(), nil
}

func (b *table) Cas(_ context.Context, template space.Template, tuple space.Tuple, p board.Put) (space.ID, *space.Entry, bool, error) {
	r, id, err := b.do(space.Op{Verb: space.Cas, Template: template, Tuple: tuple, Lease: p.Lease, Readers: p.Readers, Takers: p.Takers})
	if r.Status == space.Exists {
		if len(r.Entries) == 0 {
			return id, nil, false, nil
		}
		return id, &r.Entries[0], false, nil
	}
	return id, nil, err == nil, err
}

func (b *table) Renew(_ context.Context, id space.ID, lease time.Duration) error {
	_, _, err := b.do(space.Op{Verb: space.Renew, Target: id, Lease: lease})
	return err
}

func (b *table) Remove(_ context.Context, id space.ID) error {
	_, _, err := b.do(space.Op{Verb: space.Remove, Target: id})
	return err
}

func (b *table) List(_ context.Context, template space.Template) ([]space.Entry, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.down != nil {
		return nil, b.down
	}
	return b.space.Read(b.now(), b.who.Key(), space.Query{Template: template, Limit: space.MaxEntries}).Entries, nil
}

func (b *table) node(name string) Node {
	return Node{Name: name, Key: b.who.Key(), Addresses: []string{"192.0.2.1:7443", "[2001:db8::1]:7443"}, Modes: []string{"forward", "nat"}, ASN: 64500}
}

func (b *table) stream(name string) Stream {
	return Stream{Name: name, Key: b.who.Key(), Addresses: []string{"device.example:7000"}}
}

func (b *table) register(t *testing.T, r Registration) space.ID {
	t.Helper()
	id, err := Register(t.Context(), b, r, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func (b *table) directory(t *testing.T) Directory {
	t.Helper()
	entries, err := list(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	return Parse(entries)
}

func TestWhatIsRegisteredIsRead(t *testing.T) {
	b := newTable(t)
	b.now = func() time.Time { return start }
	node := b.node("tokyo")
	node.ID = b.register(t, node)
	stream := b.stream("files")
	stream.ID = b.register(t, stream)
	node.Until, stream.Until = start.Add(time.Hour), start.Add(time.Hour)
	want := Directory{Nodes: []Node{node}, Streams: []Stream{stream}}
	if got := b.directory(t); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	for _, which := range []string{"files", b.who.Key().String()} {
		if got, err := want.Stream(which); err != nil || got.Name != "files" {
			t.Errorf("%s: %v, %v", which, got, err)
		}
	}
	if _, err := want.Stream("tokyo"); err == nil {
		t.Error("a node was taken for a stream")
	}
}

func TestRegisteringAgain(t *testing.T) {
	b := newTable(t)
	first := b.register(t, b.node("tokyo"))
	if again := b.register(t, b.node("tokyo")); again != first {
		t.Error("the same again is another tuple")
	}
	moved := b.node("tokyo")
	moved.Addresses = []string{"198.51.100.7:7443"}
	b.register(t, moved)
	if d := b.directory(t); len(d.Nodes) != 1 || d.Nodes[0].Addresses[0] != "198.51.100.7:7443" {
		t.Errorf("after a move: %+v", d.Nodes)
	}
}

func TestTwoOfOneName(t *testing.T) {
	b := newTable(t)
	other := b.as(fresh(t))
	b.register(t, b.stream("tokyo"))
	_, err := Register(t.Context(), other, other.stream("tokyo"), time.Hour)
	if taken, ok := errors.AsType[*TakenError](err); !ok || taken.By != b.who.Key() {
		t.Fatalf("politely: %v", err)
	}
	tuple, err := other.stream("tokyo").fields() // by a device that does not ask whether the name is taken
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := other.do(space.Op{Verb: space.Out, Tuple: tuple, Lease: time.Hour}); err != nil {
		t.Fatal(err)
	}
	d := b.directory(t)
	_, err = d.Stream("tokyo")
	if both, ok := errors.AsType[*AmbiguousError](err); !ok || len(both.Keys) != 2 || both.HintText() == "" {
		t.Errorf("by name: %v", err)
	}
	if n, err := d.Stream(other.who.Key().String()); err != nil || n.Key != other.who.Key() {
		t.Errorf("by key: %v", err)
	}
	if got := d.Shared(); len(got) != 1 || got[0] != "tokyo" {
		t.Errorf("shared: %v", got)
	}
}

func TestWhatIsNoRegistration(t *testing.T) {
	b := newTable(t)
	good, err := b.node("tokyo").fields()
	if err != nil {
		t.Fatal(err)
	}
	with := func(at int, f space.Field) space.Tuple {
		tuple := append(space.Tuple{}, good...)
		tuple[at] = f
		return tuple
	}
	bad := []space.Tuple{
		with(2, space.Bytes(fresh(t).Key().Bytes())), // another's key
		with(2, space.Bytes([]byte("short"))),
		with(1, space.String("\x1b[31mred")),
		with(1, space.String("")),
		with(3, space.String("[]")),
		with(3, space.String("rubbish")),
		with(3, space.String(`["nowhere"]`)),
		with(3, space.String(`["host:0"]`)),
		with(3, space.String(`["\u001b[31m:1"]`)),
		with(4, space.String("forward,\n")),
		with(5, space.Int(-1)),
		with(5, space.Int(1<<32)),
	}
	for _, tuple := range bad {
		if _, _, err := b.do(space.Op{Verb: space.Out, Tuple: tuple, Lease: time.Hour}); err != nil {
			t.Fatal(err)
		}
	}
	if d := b.directory(t); len(d.Nodes) != 0 || d.Ignored != len(bad) {
		t.Errorf("%d of %d are left out, and there are %+v", d.Ignored, len(bad), d.Nodes)
	}
	for _, r := range []Registration{Node{Name: "no address", Key: b.who.Key()}, Stream{Name: "x", Key: b.who.Key(), Addresses: []string{"here"}}} {
		if _, err := Register(t.Context(), b, r, time.Hour); err == nil {
			t.Errorf("%+v was registered", r)
		}
	}
}

// FuzzParse: whatever an author signs, reading it does no harm, and what is read could be registered again.
func FuzzParse(f *testing.F) {
	f.Add("tokyo", []byte("12345678901234567890123456789012"), `["192.0.2.1:1"]`, "forward", int64(1))
	id, err := identity.New()
	if err != nil {
		f.Fatal(err)
	}
	f.Add("tokyo", id.Key().Bytes(), `["192.0.2.1:1","h:2"]`, "forward,nat", int64(64500))
	f.Fuzz(func(t *testing.T, name string, key []byte, addresses, modes string, asn int64) {
		if len(key) == 32 && key[0]&1 == 1 {
			key = id.Key().Bytes()
		}
		tuple := space.Tuple{space.String(kindNode), space.String(name), space.Bytes(key), space.String(addresses), space.String(modes), space.Int(asn)}
		op, err := space.Op{Verb: space.Out, Tuple: tuple, Lease: time.Hour}.Sign(id, start)
		if err != nil {
			return
		}
		d := Parse([]space.Entry{{Seq: 1, Op: op}})
		if len(d.Nodes)+d.Ignored != 1 {
			t.Fatalf("%+v", d)
		}
		for _, n := range d.Nodes {
			if _, err := n.fields(); err != nil || n.Key != id.Key() {
				t.Errorf("%+v: %v", n, err)
			}
		}
	})
}

func TestKeepRenewsAndRemoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTable(t)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- Keep(ctx, b, b.node("tokyo"), 10*time.Minute, slog.New(slog.DiscardHandler)) }()
		there := func(want int, when string) {
			t.Helper()
			synctest.Wait()
			if d := b.directory(t); len(d.Nodes) != want {
				t.Errorf("%s: %d nodes", when, len(d.Nodes))
			}
		}
		there(1, "at once")
		time.Sleep(time.Hour)
		there(1, "an hour later")
		b.fail(errors.New("unplugged"))
		time.Sleep(11 * time.Minute)
		synctest.Wait()
		b.fail(nil)
		there(0, "when the board could not be reached for longer than the lease")
		time.Sleep(time.Minute)
		there(1, "when it can be again")
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		there(0, "at the end")
	})
}

func TestKeepEndsWhereTheNameIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTable(t)
		b.register(t, b.node("tokyo"))
		other := b.as(fresh(t))
		err := Keep(t.Context(), other, other.node("tokyo"), time.Minute, slog.New(slog.DiscardHandler))
		if _, taken := errors.AsType[*TakenError](err); !taken {
			t.Errorf("%v", err)
		}
	})
}

func TestTheListOfTheLastTime(t *testing.T) {
	b := newTable(t)
	now := start
	b.now = func() time.Time { return now }
	b.register(t, b.node("tokyo"))
	cache := Cache{File: filepath.Join(t.TempDir(), "new", "list.json"), Space: space.ID{1}, MaxAge: time.Hour, Clock: b.now}
	unplugged := errors.New("unplugged")
	b.fail(unplugged)
	if _, err := cache.Load(t.Context(), b); !errors.Is(err, unplugged) {
		t.Errorf("without a list: %v", err)
	}
	b.fail(nil)
	if d, err := cache.Load(t.Context(), b); err != nil || d.Cached != "" || len(d.Nodes) != 1 || !d.Read.Equal(start) {
		t.Errorf("from the board: %+v, %v", d, err)
	}
	b.fail(unplugged)
	now = start.Add(59 * time.Minute)
	if d, err := cache.Load(t.Context(), b); err != nil || d.Cached != "unplugged" || len(d.Nodes) != 1 || !d.Read.Equal(start) {
		t.Errorf("59 minutes old: %+v, %v", d, err)
	}
	for name, at := range map[string]time.Duration{"61 minutes old": 61 * time.Minute, "of tomorrow": -24 * time.Hour} {
		now = start.Add(at)
		if _, err := cache.Load(t.Context(), b); !errors.Is(err, unplugged) || !strings.Contains(err.Error(), "too old") {
			t.Errorf("%s: %v", name, err)
		}
	}
	now = start
	b.fail(&board.Refusal{Result: space.Result{Status: space.Stranger}})
	if _, err := cache.Load(t.Context(), b); err == nil {
		t.Error("who is not let in any more still gets the list")
	}
	b.fail(unplugged)
	other := cache
	other.Space = space.ID{2}
	if _, err := other.Load(t.Context(), b); err == nil || !strings.Contains(err.Error(), "another board") {
		t.Errorf("the list of another board: %v", err)
	}
	spoilt(t, cache, b)
}

// spoilt changes the kept list, which nobody but the authors of its tuples can.
func spoilt(t *testing.T, cache Cache, b *table) {
	t.Helper()
	s, entries, err := cache.read()
	if err != nil {
		t.Fatal(err)
	}
	raw := bytes.Clone(entries[0].Op.Bytes())
	raw = bytes.Replace(raw, []byte("tokyo"), []byte("kyoto"), 1)
	if entries[0].Op, err = space.DecodeOp(raw); err != nil {
		t.Fatal(err)
	}
	if err := cache.save(entries, s.Read); err != nil {
		t.Fatal(err)
	}
	if _, err := cache.Load(t.Context(), b); err == nil || !strings.Contains(err.Error(), "not signed") {
		t.Errorf("a list that somebody changed: %v", err)
	}
	if err := os.WriteFile(cache.File, []byte("rubbish"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := cache.Load(t.Context(), b); err == nil || !strings.Contains(err.Error(), "cannot be used") {
		t.Errorf("rubbish: %v", err)
	}
}
