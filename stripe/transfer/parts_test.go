package transfer

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"heddle/internal/polltest"
)

// A sender that comes back goes on at once with what its transfer before holds, of which nobody knows yet that it is dead. Others
// have to wait for that.
func TestNewTransferTakesOver(t *testing.T) {
	data := content(11, 2000)
	from, into, parts := fill(t, map[string][]byte{"file": data}), t.TempDir(), &Parts{}
	offered := collect(t, filepath.Join(from, "file"))
	a, b := socketPair(t)
	first := make(chan error, 1)
	go func() {
		_, err := Receive(t.Context(), b, ReceiveOptions{Into: into, From: "ann", Parts: parts})
		first <- err
	}()
	if _, err := a.Write(said(t, offer{Version: version, Files: offered}, begin{}, data[:500])); err != nil {
		t.Fatal(err)
	}
	polltest.Await(t, "500 bytes are in the part", func() bool {
		info, err := os.Stat(filepath.Join(into, "file.part"))
		return err == nil && info.Size() == 500
	})
	o := between(t, offered, SendOptions{}, ReceiveOptions{Into: into, From: "bob", Parts: parts}, nil)
	o.check(t, map[string]string{"file": StateRefused})
	o = between(t, offered, SendOptions{}, ReceiveOptions{Into: into, From: "ann", Parts: parts}, nil)
	o.check(t, map[string]string{"file": StateResumed})
	if got, err := os.ReadFile(filepath.Join(into, "file")); err != nil || !bytes.Equal(got, data) || o.sent.Bytes != 1500 {
		t.Errorf("%d bytes arrived, %d were sent again, %v", len(got), o.sent.Bytes, err)
	}
	in, answered := reader{from: a}, answer{}
	if err := in.expect(kindAnswer, &answered); err != nil {
		t.Fatal(err)
	}
	if _, told := errors.AsType[*StoppedError](in.expect(kindResults, nil)); !told {
		t.Error("the sender that was replaced does not hear so")
	}
	a.Close()
	if err := <-first; !errors.Is(err, ErrTakenOver) {
		t.Errorf("the first transfer ends with %v", err)
	}
}

// Two transfers of one sender that want each other's files do not wait for each other: the newer goes on.
func TestOlderTransferYields(t *testing.T) {
	p := &Parts{}
	older, newer := p.begin(t.Context(), "ann"), p.begin(t.Context(), "ann")
	leave, err := older.take("a")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := newer.take("b"); err != nil {
		t.Fatal(err)
	}
	if _, err := older.take("b"); err == nil || newer.over.Err() != nil {
		t.Errorf("the older takes over, %v", err)
	}
	took := make(chan error)
	go func() {
		_, err := newer.take("a")
		took <- err
	}()
	<-older.over.Done()
	leave()
	if err := <-took; err != nil || context.Cause(older.over) != ErrTakenOver {
		t.Errorf("the newer takes it with %v, the older ends with %v", err, context.Cause(older.over))
	}
	stranger, nobody := p.begin(t.Context(), "bob"), p.begin(t.Context(), "")
	for _, other := range []*turn{stranger, nobody} {
		if _, err := other.take("a"); err == nil {
			t.Errorf("%q takes over", other.from)
		}
	}
}
