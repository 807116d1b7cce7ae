package split

import (
	"encoding/binary"
	"errors"
	"net"
	"testing"
	"time"

	"golang.zx2c4.com/wireguard/conn"

	"heddle/schedule"
)

// A whole session goes through the reorderer, over three paths, by a device that was taken down and up again.
func TestWireGuardSessionInOrder(t *testing.T) {
	w := startWireguard(t, true)
	const seed = 22
	s := uint64(seed)
	f, err := NewSession(Options{Session: "office", To: w.address.String(), Via: loopbackPaths(3), Reorder: orderWindow,
		Schedule: schedule.Config{Name: "uniform", Every: schedule.Every{Packets: 2}, Seed: &s}})
	if err != nil {
		t.Fatal(err)
	}
	b, err := NewBind(f, w.client)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Prove(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	client, dev := w.connectDevice(t, b)
	if err := dev.Down(); err != nil {
		t.Fatal(err)
	}
	if err := dev.Up(); err != nil {
		t.Fatal(err)
	}
	w.download(t, client, 8<<20)
	for _, p := range b.Status().Paths {
		if p.Down.Packets == 0 {
			t.Errorf("seed %d: nothing came by path %s", seed, p.Name)
		}
	}
}

// transportOf is a transport message with a counter.
func transportOf(counter uint64) []byte {
	d := binary.LittleEndian.AppendUint64([]byte{transportType, 0, 0, 0, 1, 2, 3, 4}, counter)
	return append(d, make([]byte, transportMin)...)
}

// orderedBind is an open bind over two paths in memory.
func orderedBind(t *testing.T) (*Bind, []*fakePath, conn.ReceiveFunc) {
	t.Helper()
	f, paths := closedFake(t, 2, func(o *Options) { o.Reorder = time.Second })
	private, public := keyPair(t)
	b, err := NewBind(f, Keys{Private: private, PeerPublic: public})
	if err != nil {
		t.Fatal(err)
	}
	receivers, _, err := b.Open(0)
	if err != nil || len(receivers) != 1 {
		t.Fatalf("%d receivers, %v", len(receivers), err)
	}
	t.Cleanup(func() { b.Close() })
	return b, paths, receivers[0]
}

// received gives the counters that one call gives.
func received(t *testing.T, receive conn.ReceiveFunc) []uint64 {
	t.Helper()
	packets, sizes, endpoints := make([][]byte, 8), make([]int, 8), make([]conn.Endpoint, 8)
	for i := range packets {
		packets[i] = make([]byte, 2048)
	}
	n, err := receive(packets, sizes, endpoints)
	if err != nil {
		t.Fatal(err)
	}
	var counters []uint64
	for i, p := range packets[:n] {
		if sizes[i] != len(transportOf(0)) || endpoints[i].DstToString() != fakeServer.String() {
			t.Errorf("%d bytes from %s", sizes[i], endpoints[i].DstToString())
		}
		counters = append(counters, binary.LittleEndian.Uint64(p[8:]))
	}
	return counters
}

func TestBindGivesPacketsInOrder(t *testing.T) {
	b, paths, receive := orderedBind(t)
	var got []uint64
	for _, step := range []struct {
		path    int
		counter uint64
		waitFor int
	}{{0, 0, 1}, {1, 2, 1}, {1, 3, 1}, {0, 1, 4}} {
		paths[step.path].put(fakeServer, transportOf(step.counter))
		for len(got) < step.waitFor {
			got = append(got, received(t, receive)...)
		}
	}
	for i, counter := range got {
		if counter != uint64(i) {
			t.Fatalf("received %v", got)
		}
	}
	ended := make(chan error, 1)
	go func() {
		_, err := receive(make([][]byte, 8), make([]int, 8), make([]conn.Endpoint, 8))
		ended <- err
	}()
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, net.ErrClosed) {
		t.Errorf("a receiver ends with %v", err)
	}
}

// Where wireguard-go takes nothing, what waits for it is bounded, and closing waits for nobody.
func TestBindReadsNoFurtherThanItsQueue(t *testing.T) {
	b, paths, _ := orderedBind(t)
	outside := paths[0].flow.arrived
	for counter := range uint64(joinedLimit + cap(outside)) {
		paths[0].put(fakeServer, transportOf(counter))
	}
	waiting := func() int {
		b.joined.mu.Lock()
		defer b.joined.mu.Unlock()
		return len(b.joined.queue)
	}
	for deadline := time.Now().Add(time.Minute); waiting() != joinedLimit || len(outside) != cap(outside); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d wait, and %d outside", waiting(), len(outside))
		}
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
}
