package space

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"heddle/identity"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// world is a space with three people, and a clock that the test moves.
type world struct {
	t           *testing.T
	space       *Space
	now         time.Time
	ann, bob, c identity.Identity
}

func newWorld(t *testing.T, change func(*Config)) *world {
	t.Helper()
	w := &world{t: t, now: start}
	for _, who := range []*identity.Identity{&w.ann, &w.bob, &w.c} {
		id, err := identity.New()
		if err != nil {
			t.Fatal(err)
		}
		*who = id
	}
	config := Config{Name: ID{1}, Limits: DefaultLimits(), Members: []identity.Key{w.ann.Key(), w.bob.Key()}}
	if change != nil {
		change(&config)
	}
	s, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	w.space = s
	return w
}

func (w *world) sign(who identity.Identity, op Op) SignedOp {
	w.t.Helper()
	op.Space = w.space.config.Name
	signed, err := op.Sign(who, w.now)
	if err != nil {
		w.t.Fatal(err)
	}
	return signed
}

func (w *world) do(who identity.Identity, op Op) (Result, ID) {
	w.t.Helper()
	signed := w.sign(who, op)
	return w.space.Apply(w.now, signed), signed.ID()
}

// want does an operation and checks how it ended.
func (w *world) want(status Status, who identity.Identity, op Op) Result {
	w.t.Helper()
	r, _ := w.do(who, op)
	if r.Status != status {
		w.t.Errorf("%v: %v (%s), want %v", op.Verb, r.Status, r.Detail, status)
	}
	return r
}

func (w *world) read(who identity.Identity, template ...Field) []Entry {
	w.t.Helper()
	r := w.space.Read(w.now, who.Key(), Query{Template: template, Limit: MaxEntries})
	if r.Status != OK && r.Status != None {
		w.t.Errorf("a read: %v (%s)", r.Status, r.Detail)
	}
	return r.Entries
}

func out(lease time.Duration, fields ...Field) Op { return Op{Verb: Out, Lease: lease, Tuple: fields} }

func TestTuplesArePutReadAndTakenInOrder(t *testing.T) {
	w := newWorld(t, nil)
	for i := range int64(3) {
		w.want(OK, w.ann, out(time.Hour, String("job"), Int(i), Bytes([]byte{0, 255}), Bool(i == 1)))
	}
	w.want(OK, w.ann, out(time.Hour, String("job"), String("of another type"), Bytes(nil), Bool(true)))
	for _, c := range []struct {
		template Template
		want     int
	}{
		{nil, 4},
		{Template{String("job"), Any(), Any(), Any()}, 4},
		{Template{String("job"), AnyOf(TypeInt), Any(), Any()}, 3},
		{Template{String("job"), Int(1), Any(), Any()}, 1},
		{Template{Any(), Any(), Any(), Bool(true)}, 2},
		{Template{Any(), Any(), Bytes([]byte{0, 255}), Any()}, 3},
		{Template{String("job")}, 0},
		{Template{Bytes([]byte("job")), Any(), Any(), Any()}, 0},
	} {
		if got := w.read(w.bob, c.template...); len(got) != c.want {
			t.Errorf("%v: %d tuples, want %d", c.template, len(got), c.want)
		}
	}
	jobs := Template{String("job"), AnyOf(TypeInt), Any(), Any()}
	for i := range int64(3) {
		r := w.want(OK, w.ann, Op{Verb: Inp, Template: jobs})
		if got := r.Entries[0].Tuple()[1].Int(); got != i {
			t.Errorf("taken as number %d: %d", i, got)
		}
	}
	w.want(None, w.ann, Op{Verb: Inp, Template: jobs})
}

func TestConditionalSwap(t *testing.T) {
	w := newWorld(t, nil)
	lock := Op{Verb: Cas, Lease: time.Minute, Template: Template{String("lock"), Any()}, Tuple: Tuple{String("lock"), Int(1)}}
	w.want(OK, w.ann, lock)
	if r := w.want(Exists, w.bob, lock); len(r.Entries) != 1 || r.Entries[0].Author() != w.ann.Key() {
		t.Errorf("what there is: %v", r.Entries)
	}
	w.now = w.now.Add(time.Minute)
	w.want(OK, w.bob, lock) // ann's lease has ended
	lock.Readers, lock.Template = []identity.Key{w.ann.Key()}, Template{String("secret"), Any()}
	lock.Tuple = Tuple{String("secret"), Int(1)}
	w.want(OK, w.ann, lock)
	if r := w.want(Exists, w.bob, lock); len(r.Entries) != 0 {
		t.Error("a tuple was shown to somebody who may not read it")
	}
}

func TestAccessLists(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.Members = nil })
	ann, bob := w.ann.Key(), w.bob.Key()
	for _, c := range []struct {
		name            string
		readers, takers []identity.Key
		bobReads, cRead bool
		bobTakes        Status
	}{
		{"as it is", nil, nil, true, true, Denied},
		{"only its author", []identity.Key{ann}, nil, false, false, None},
		{"nobody else", []identity.Key{}, nil, true, true, Denied}, // an empty list is none
		{"bob reads", []identity.Key{bob}, nil, true, false, Denied},
		{"bob takes", nil, []identity.Key{bob}, true, true, OK},
		{"all take", nil, []identity.Key{Anyone}, true, true, OK},
		{"bob takes blindly", []identity.Key{ann}, []identity.Key{bob}, false, false, OK},
	} {
		op := out(time.Hour, String(c.name))
		op.Readers, op.Takers = c.readers, c.takers
		_, id := w.do(w.ann, op)
		if got := len(w.read(w.bob, String(c.name))) == 1; got != c.bobReads {
			t.Errorf("%s: bob reads: %v", c.name, got)
		}
		if got := len(w.read(w.c, String(c.name))) == 1; got != c.cRead {
			t.Errorf("%s: c reads: %v", c.name, got)
		}
		if len(w.read(w.ann, String(c.name))) != 1 {
			t.Errorf("%s: its author does not read it", c.name)
		}
		if c.bobTakes != OK {
			w.want(c.bobTakes, w.bob, Op{Verb: Remove, Target: id})
			w.want(c.bobTakes, w.bob, Op{Verb: Renew, Target: id, Lease: time.Hour})
		}
		if got := w.space.Takeable(w.now, bob, Template{String(c.name)}); got != (c.bobTakes == OK) {
			t.Errorf("%s: takeable by bob: %v", c.name, got)
		}
		w.want(c.bobTakes, w.bob, Op{Verb: Inp, Template: Template{String(c.name)}})
		if left := len(w.read(w.ann, String(c.name))); (left == 0) != (c.bobTakes == OK) {
			t.Errorf("%s: %d left", c.name, left)
		}
	}
}

func TestLeasesEndAndAreRenewed(t *testing.T) {
	w := newWorld(t, nil)
	_, kept := w.do(w.ann, out(time.Minute, String("kept")))
	w.want(OK, w.ann, out(time.Minute, String("left")))
	w.now = w.now.Add(59 * time.Second)
	w.want(OK, w.ann, Op{Verb: Renew, Target: kept, Lease: time.Minute})
	w.want(Denied, w.bob, Op{Verb: Renew, Target: kept, Lease: time.Minute})
	w.now = w.now.Add(time.Second)
	got := w.read(w.bob)
	if len(got) != 1 || got[0].ID() != kept {
		t.Fatalf("after a minute: %d tuples", len(got))
	}
	if err := got[0].Verify(w.space.config.Name, w.space.config.Limits.Slack); err != nil {
		t.Error(err)
	}
	w.now = w.now.Add(59 * time.Second)
	w.want(None, w.ann, Op{Verb: Renew, Target: kept, Lease: time.Minute})
	w.now = w.now.Add(time.Hour)
	w.space.Advance(w.now)
	if u := w.space.Usage(); u.Tuples != 0 || u.Bytes != 0 || u.Authors != 0 || u.Remembered != 0 || len(w.space.index) != 0 {
		t.Errorf("when all has ended: %+v", u)
	}
}

func TestTheClockNeverGoesBack(t *testing.T) {
	w := newWorld(t, nil)
	w.want(OK, w.ann, out(time.Minute, String("x")))
	w.space.Advance(start.Add(time.Minute))
	w.now = start
	w.want(OK, w.ann, out(time.Minute, String("y")))
	if got := w.read(w.bob); len(got) != 1 || !got[0].Until.Equal(start.Add(2*time.Minute)) {
		t.Errorf("read: %v", got)
	}
}

func TestWhatIsRefused(t *testing.T) {
	w := newWorld(t, nil)
	good := w.sign(w.ann, out(time.Hour, String("x")))
	forged := func(change func([]byte)) SignedOp {
		raw := bytes.Clone(good.Bytes())
		change(raw)
		op, err := DecodeOp(raw)
		if err != nil {
			t.Fatal(err)
		}
		return op
	}
	at := func(d time.Duration) SignedOp {
		op, err := out(time.Hour, String("x")).Sign(w.ann, w.now.Add(d))
		if err != nil {
			t.Fatal(err)
		}
		return op
	}
	elsewhere := at(0)
	on := func(op SignedOp) SignedOp { // the same for this space
		raw := bytes.Clone(op.Bytes())
		copy(raw[1:], w.space.config.Name[:])
		signature, _ := w.ann.Sign(purpose, raw[:len(raw)-sigSize])
		again, err := DecodeOp(append(raw[:len(raw)-sigSize], signature...))
		if err != nil {
			t.Fatal(err)
		}
		return again
	}
	for _, c := range []struct {
		name string
		op   SignedOp
		want Status
	}{
		{"no operation", SignedOp{}, Malformed},
		{"for another space", elsewhere, Malformed},
		{"in another's name", forged(func(b []byte) { copy(b[33:], w.bob.Key().Bytes()) }), Unsigned},
		{"changed on the way", forged(func(b []byte) { b[len(b)-sigSize-3] = 'y' }), Unsigned},
		{"without a signature", forged(func(b []byte) { clear(b[len(b)-sigSize:]) }), Unsigned},
		{"of a stranger", w.sign(w.c, out(time.Hour, String("x"))), Stranger},
		{"an hour late", on(at(-time.Hour)), Clock},
		{"an hour early", on(at(time.Hour)), Clock},
		{"too large", w.sign(w.ann, out(time.Hour, Bytes(make([]byte, 64<<10)))), TooLarge},
		{"without a lease", w.sign(w.ann, out(0, String("x"))), Malformed},
		{"with too long a lease", w.sign(w.ann, out(8*24*time.Hour, String("x"))), Quota},
		{"nothing to renew", w.sign(w.ann, Op{Verb: Renew, Lease: time.Hour}), None},
		{"nothing to remove", w.sign(w.ann, Op{Verb: Remove}), None},
	} {
		if r := w.space.Apply(w.now, c.op); r.Status != c.want || r.Detail == "" {
			t.Errorf("%s: %v (%s), want %v", c.name, r.Status, r.Detail, c.want)
		}
	}
	if got := w.read(w.ann); len(got) != 0 {
		t.Errorf("%d tuples came in", len(got))
	}
	if r := w.space.Read(w.now, w.c.Key(), Query{Limit: 1}); r.Status != Stranger {
		t.Errorf("a stranger reads: %v", r.Status)
	}
}

func TestAnOperationIsDoneOnce(t *testing.T) {
	w := newWorld(t, nil)
	op := w.sign(w.ann, out(time.Hour, String("x")))
	first := w.space.Apply(w.now, op)
	again := w.space.Apply(w.now.Add(time.Second), op)
	if !bytes.Equal(first.Encode(), again.Encode()) || len(w.read(w.ann)) != 1 {
		t.Errorf("the second time: %+v, %d tuples", again, len(w.read(w.ann)))
	}
	take := w.sign(w.ann, Op{Verb: Inp, Template: Template{String("x")}})
	taken := w.space.Apply(w.now, take)
	w.want(OK, w.ann, out(time.Hour, String("x")))
	if r := w.space.Apply(w.now.Add(time.Minute), take); !bytes.Equal(r.Encode(), taken.Encode()) || len(w.read(w.ann)) != 1 {
		t.Errorf("what was taken, again: %v", r.Status)
	}
	nothing := w.sign(w.ann, Op{Verb: Inp, Template: Template{String("z")}})
	w.space.Apply(w.now, nothing)
	w.want(OK, w.ann, out(time.Hour, String("z")))
	if r := w.space.Apply(w.now, nothing); r.Status != None {
		t.Errorf("what found nothing, sent again by somebody else: %v", r.Status)
	}
	if r := w.space.Apply(w.now.Add(3*time.Minute), take); r.Status != Clock {
		t.Errorf("later: %v", r.Status)
	}
}

func TestLimits(t *testing.T) {
	w := newWorld(t, func(c *Config) {
		c.Limits.AuthorTuples, c.Limits.Tuples, c.Limits.AuthorBytes, c.Limits.AuthorOps = 3, 4, 4096, 8
	})
	for i := range int64(3) {
		w.want(OK, w.ann, out(time.Hour, Int(i)))
	}
	w.want(Quota, w.ann, out(time.Hour, Int(3)))
	w.want(OK, w.bob, out(time.Hour, Int(4)))
	w.want(Full, w.bob, out(time.Hour, Int(5)))
	w.want(OK, w.ann, Op{Verb: Inp, Template: Template{Int(0)}})
	w.want(Quota, w.ann, out(time.Hour, Bytes(make([]byte, 3900))))
	w.want(OK, w.ann, out(time.Hour, Int(0)))
	for range 8 {
		w.do(w.ann, Op{Verb: Remove})
	}
	w.want(Quota, w.ann, Op{Verb: Remove})
	w.now = w.now.Add(3 * time.Minute)
	w.want(None, w.ann, Op{Verb: Remove})
}

// Replicas: two spaces that apply the same, and a third that joins by a snapshot, or by rows of a store.
func TestReplicasAgree(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 1))
	w := newWorld(t, func(c *Config) { c.Limits.Slack = 5 * time.Second })
	other, _ := New(w.space.config)
	rows := map[string][]byte{}
	var ids []ID
	for step := range 1500 {
		w.now = w.now.Add(time.Duration(r.IntN(500)) * time.Millisecond)
		who := []identity.Identity{w.ann, w.bob, w.c}[r.IntN(3)]
		op := Op{Verb: Verb(1 + r.IntN(5)), Lease: time.Duration(r.IntN(60)) * time.Second}
		op.Tuple = Tuple{String("n"), Int(r.Int64N(5)), Bool(r.IntN(2) == 0)}
		op.Template = Template{String("n"), []Field{Any(), Int(r.Int64N(5))}[r.IntN(2)], Any()}
		op.Takers = [][]identity.Key{nil, {Anyone}}[r.IntN(2)]
		if len(ids) > 0 {
			op.Target = ids[r.IntN(len(ids))]
		}
		signed := w.sign(who, op)
		ids = append(ids, signed.ID())
		a, b := w.space.Apply(w.now, signed), other.Apply(w.now, signed)
		if !bytes.Equal(a.Encode(), b.Encode()) || w.space.Hash() != other.Hash() {
			t.Fatalf("seed %d, step %d: %v and %v", seed, step, a, b)
		}
		for _, c := range other.Changes() {
			if rows[string(c.Key)] = c.Value; c.Value == nil {
				delete(rows, string(c.Key))
			}
		}
		if step%100 == 99 {
			other = joined(t, w.space, rows, step)
		}
	}
	if w.space.Usage().Tuples == 0 {
		t.Errorf("seed %d: nothing is left to compare", seed)
	}
}

// joined makes a space of s's snapshot and one of the rows that were stored; both must be equal to s.
func joined(t *testing.T, s *Space, rows map[string][]byte, step int) *Space {
	t.Helper()
	restored, err := Restore(s.config, s.Snapshot())
	if err != nil {
		t.Fatal(err)
	}
	var list []Change
	for key, value := range rows {
		list = append(list, Change{[]byte(key), value})
	}
	loaded, err := Load(s.config, list)
	if err != nil {
		t.Fatal(err)
	}
	if restored.Hash() != s.Hash() || loaded.Hash() != s.Hash() || !bytes.Equal(loaded.Snapshot(), s.Snapshot()) || loaded.Usage() != s.Usage() {
		t.Fatalf("step %d: restored %v, loaded %v", step, restored.Hash() == s.Hash(), loaded.Hash() == s.Hash())
	}
	if step%200 == 99 {
		return loaded
	}
	return restored
}

func TestBadSnapshots(t *testing.T) {
	w := newWorld(t, nil)
	w.want(OK, w.ann, out(time.Hour, String("x"), Int(7)))
	good := w.space.Snapshot()
	for i := range good {
		bad := bytes.Clone(good)
		bad[i] ^= 1
		if s, err := Restore(w.space.config, bad); err == nil && s.Hash() == w.space.Hash() {
			t.Errorf("byte %d changed: taken for the same", i)
		}
	}
	for n := range len(good) {
		if s, err := Restore(w.space.config, good[:n]); err == nil && s.Hash() == w.space.Hash() {
			t.Errorf("cut to %d bytes: taken for the same", n)
		}
	}
	config := w.space.config
	config.Name = ID{2}
	if _, err := Restore(config, good); err == nil || !strings.Contains(err.Error(), "of the board") {
		t.Errorf("of another board: %v", err)
	}
	config = w.space.config
	config.Limits.Tuples++
	if s, err := Restore(config, good); err != nil || s.Hash() == w.space.Hash() {
		t.Errorf("other limits do not show: %v", err)
	}
}

func TestALyingBoardCannotForge(t *testing.T) {
	w := newWorld(t, nil)
	_, id := w.do(w.ann, out(time.Hour, String("x")))
	w.want(OK, w.ann, Op{Verb: Renew, Target: id, Lease: time.Hour})
	entry := w.read(w.bob)[0]
	name, slack := w.space.config.Name, w.space.config.Limits.Slack
	other := w.sign(w.ann, out(time.Hour, String("y")))
	for _, c := range []struct {
		name   string
		change func(*Entry)
		want   string
	}{
		{"as it is", func(*Entry) {}, ""},
		{"longer", func(e *Entry) { e.Until = e.Until.Add(3 * time.Minute) }, "asked for"},
		{"another's renewal", func(e *Entry) { e.Renewal = w.sign(w.bob, Op{Verb: Renew, Target: id, Lease: time.Hour}) }, "another tuple"},
		{"another tuple's renewal", func(e *Entry) { e.Op = other }, "another tuple"},
		{"no tuple", func(e *Entry) { e.Op = e.Renewal }, "not put"},
		{"nothing", func(e *Entry) { *e = Entry{} }, "not put"},
	} {
		e := entry
		c.change(&e)
		if err := e.Verify(name, slack); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if err := entry.Verify(ID{2}, slack); err == nil {
		t.Error("taken for another board's")
	}
}

func TestFieldsAsText(t *testing.T) {
	for _, text := range []string{"tokyo", "", "int:-42", "bytes:00ff", "bytes:", "bool:true", "?", "?int", "?string", "string:int:42", "string:?", "string:string:x", "a:b", "192.0.2.1:443"} {
		f, err := ParseField(text)
		if err != nil || f.String() != text {
			t.Errorf("%q: %v, %v", text, f, err)
		}
	}
	for _, bad := range []string{"int:x", "int:99999999999999999999", "bytes:0", "bool:maybe", "?float", "\xff"} {
		if f, err := ParseField(bad); err == nil {
			t.Errorf("%q was read as %v", bad, f)
		}
	}
	got, err := fmt.Sprint(String("a<b"), Int(1)), error(nil)
	if got != "a<b int:1" || err != nil {
		t.Errorf("printed as %q", got)
	}
}

// Snapshot gives the whole state in the order of keys, as a store has it.
func (s *Space) Snapshot() []byte {
	rows := []Change{{countersKey, s.counters()}}
	for _, t := range s.tuples {
		rows = append(rows, Change{t.key(), t.value()})
	}
	for _, m := range s.memory {
		rows = append(rows, Change{m.key(), m.value()})
	}
	slices.SortFunc(rows, func(a, b Change) int { return bytes.Compare(a.Key, b.Key) })
	var b bytes.Buffer
	w := NewSnapshotWriter(&b)
	for _, row := range rows {
		_ = w.Row(row.Key, row.Value) // memory takes all
	}
	_ = w.Flush()
	return b.Bytes()
}
