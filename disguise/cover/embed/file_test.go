package embed

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestFileKeepsEverything(t *testing.T) {
	rtp, tcp := call(100), shell()
	rtp.Loop, tcp.Whole = true, true
	d := &Database{About: "two traces", Traces: []Trace{rtp, tcp}}
	name := filepath.Join(t.TempDir(), "a.db")
	if err := d.Write(name); err != nil {
		t.Fatal(err)
	}
	got, err := Load(name)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, d) {
		t.Errorf("%+v\nwant %+v", got, d)
	}
}

// Nanoseconds are lost, and do not add up.
func TestFileRoundsEachTime(t *testing.T) {
	trace := call(300)
	for i := range trace.Packets {
		trace.Packets[i].At += time.Duration(i) * 999
	}
	d := databaseOf(t, trace)
	for i, p := range d.Traces[0].Packets {
		if want := trace.Packets[i].At; p.At > want || p.At <= want-time.Microsecond {
			t.Fatalf("packet %d: %v, want %v", i, p.At, want)
		}
	}
}

func packed(text string) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write([]byte(text))
	_ = w.Close()
	return b.Bytes()
}

const good = `{"heddle_traces":1,"traces":[{"name":"a","datagrams":true,"gaps":[0,1000],"sizes":[200,-200]}]}`

func TestHostileFiles(t *testing.T) {
	if _, err := Parse(packed(good)); err != nil {
		t.Fatal(err)
	}
	with := func(old, new string) []byte { return packed(strings.Replace(good, old, new, 1)) }
	header := func(fields string) []byte { return with(`"gaps"`, `"up":[`+fields+`],"gaps"`) }
	for name, raw := range map[string][]byte{
		"nothing":           nil,
		"no gzip":           []byte(good),
		"cut":               packed(good)[:40],
		"no JSON":           packed("a"),
		"another JSON":      packed("{}"),
		"a newer version":   with(`s":1`, `s":2`),
		"an unknown field":  with(`"name"`, `"color":1,"name"`),
		"no traces":         packed(`{"heddle_traces":1,"traces":[]}`),
		"a bomb":            packed(good + strings.Repeat(" ", maxContents)),
		"uneven":            with(`[0,1000]`, `[0]`),
		"one packet":        with(`[0,1000],"sizes":[200,-200]`, `[0],"sizes":[200]`),
		"one direction":     with(`-200`, `200`),
		"a packet of 0":     with(`-200`, `0`),
		"a huge packet":     with(`-200`, `-70000`),
		"the smallest int":  with(`-200`, `-2147483648`),
		"back in time":      with(`1000`, `-1`),
		"a long time":       with(`1000`, `9223372036854775807`),
		"a long silence":    with(`1000`, `400000000`),
		"a late beginning":  with(`[0,`, `[5,`),
		"a fast loop":       with(`"gaps"`, `"loop":true,"gaps"`),
		"no name":           with(`"a"`, `""`),
		"a bad name":        with(`"a"`, `"a\n"`),
		"a small hello":     with(`[200,-200]`, `[100,-200]`),
		"a small answer":    with(`[200,-200]`, `[200,-90]`),
		"a stream, too few": with(`"datagrams":true,`, ``),
		"an unknown kind":   header(`{"kind":"x","bytes":1}`),
		"a field of 0":      header(`{"kind":"random","bytes":0}`),
		"a negative field":  header(`{"kind":"random","bytes":-1}`),
		"a short literal":   header(`{"kind":"literal","bytes":2,"value":"AA=="}`),
		"a wide number":     header(`{"kind":"counter","bytes":9}`),
		"too few steps":     header(`{"kind":"steps","bytes":1}`),
		"useless steps":     header(`{"kind":"random","bytes":1,"steps":[1]}`),
		"a long header":     header(`{"kind":"random","bytes":65}`),
		"a useless value":   header(`{"kind":"session","bytes":1,"value":"AA=="}`),
		"no room":           header(`{"kind":"random","bytes":64},{"kind":"random","bytes":10}`),
		"twice the name":    packed(strings.Replace(good, `]}]}`, `]},`+good[strings.Index(good, `{"name"`):], 1)),
	} {
		if _, err := Parse(raw); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestHostileStream(t *testing.T) {
	trace := shell()
	if err := trace.Check(); err != nil {
		t.Fatal(err)
	}
	first := trace
	first.Packets = append([]Packet{{Size: 100, Down: true}}, trace.Packets...)
	if first.Check() == nil {
		t.Error("a bridge cannot send before it knows the trace")
	}
	random := trace
	random.Down = Header{{Kind: Random, Bytes: 4}}
	if random.Check() == nil {
		t.Error("a stream begins with other bytes than a literal")
	}
}

func TestLoadSaysWhatIsWrong(t *testing.T) {
	name := filepath.Join(t.TempDir(), "a.db")
	if _, err := Load(name); err == nil || !strings.Contains(err.Error(), name) {
		t.Error(err)
	}
	if err := os.WriteFile(name, make([]byte, maxFile+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(name); err == nil || !strings.Contains(err.Error(), "larger") {
		t.Error(err)
	}
}

func FuzzParse(f *testing.F) {
	for _, d := range []*Database{{Traces: []Trace{call(5)}}, {Traces: []Trace{shell()}}} {
		raw, err := d.pack()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Add(packed(good))
	f.Fuzz(func(t *testing.T, raw []byte) {
		check(t, raw)
		check(t, packed(string(raw))) // the fuzzer hardly finds its way through gzip
	})
}

type nullFeed struct{}

func (nullFeed) Wait(context.Context) (int, error) { return 0, errors.New("not waited for") }
func (nullFeed) Fill(b []byte) (int, error)        { return 0, nil }
func (nullFeed) Take([]byte) error                 { return nil }

// check plays the beginning of what Parse accepts.
func check(t *testing.T, raw []byte) {
	d, err := Parse(raw)
	if err != nil {
		return
	}
	for i := range d.Traces {
		trace := &d.Traces[i]
		for _, start := range trace.starts()[:1] {
			for _, down := range []bool{false, true} {
				p := newPlayer(&connection{trace: trace, start: start, down: down}, nullFeed{})
				for _, packet := range trace.Packets[start:min(start+20, len(trace.Packets))] {
					if packet.Down != down {
						continue
					}
					if b, err := p.fill(packet.Size); err != nil || len(b) != packet.Size {
						t.Fatalf("%d bytes, not %d: %v", len(b), packet.Size, err)
					}
				}
			}
		}
		trace.silence(true)
		trace.Capacity(true)
	}
}
