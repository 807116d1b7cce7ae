package mux

import (
	"bytes"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/yamux"

	"heddle/internal/polltest"
	"heddle/internal/socks5"
)

// pair gives the two sessions of a link.
func pair(t *testing.T) (client, bridge *Session) {
	t.Helper()
	ours, theirs := net.Pipe()
	client, err := Client(ours)
	if err != nil {
		t.Fatal(err)
	}
	if bridge, err = Server(theirs); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close(); bridge.Close() })
	return client, bridge
}

// streams gives both sides of a stream whose request was granted.
func streams(t *testing.T) (ours, theirs *Stream) {
	t.Helper()
	client, bridge := pair(t)
	to, err := socks5.NewTarget("web.example", 443)
	if err != nil {
		t.Fatal(err)
	}
	if ours, err = client.Open(); err != nil {
		t.Fatal(err)
	}
	if err := ours.Ask(Request{Kind: Connect, To: to}); err != nil {
		t.Fatal(err)
	}
	if theirs, err = bridge.Accept(); err != nil {
		t.Fatal(err)
	}
	if r, err := theirs.Request(); err != nil || r.To != to || r.Kind != Connect {
		t.Fatalf("asked for %+v, %v", r, err)
	}
	if err := theirs.Answer(Granted); err != nil {
		t.Fatal(err)
	}
	return ours, theirs
}

// Each direction ends by itself, and what was written arrives whole, whatever its length.
func TestDirectionsEndApart(t *testing.T) {
	ours, theirs := streams(t)
	question, answer := strings.Repeat("question", 9000), strings.Repeat("answer", 200_000)
	go func() {
		io.WriteString(ours, question)
		ours.CloseWrite()
	}()
	if got, err := io.ReadAll(theirs); err != nil || string(got) != question {
		t.Fatalf("%d bytes, %v", len(got), err)
	}
	go func() {
		io.WriteString(theirs, answer)
		theirs.CloseWrite()
		theirs.Close()
	}()
	if got, err := io.ReadAll(ours); err != nil || string(got) != answer {
		t.Fatalf("%d bytes, %v", len(got), err)
	}
	if _, err := ours.Write([]byte("x")); err == nil {
		t.Error("written after the end")
	}
}

// A client cannot fill the memory of a bridge by streams to targets that do not read.
func TestBridgeHoldsLittle(t *testing.T) {
	ours, _ := streams(t)
	_ = ours.SetWriteDeadline(time.Now().Add(500 * time.Millisecond))
	if n, err := ours.Write(make([]byte, window)); err == nil || n > bridgeWindow+2*chunkSize {
		t.Errorf("a stream that nobody reads took %d bytes: %v", n, err)
	}
}

// A stream that somebody gave up is not mistaken for one that ended, also where the one who gave it up cannot send any more.
func TestCut(t *testing.T) {
	for name, fill := range map[string]int{"idle": 0, "window full": 2 * window} {
		t.Run(name, func(t *testing.T) {
			ours, theirs := streams(t)
			go theirs.Write(make([]byte, fill))
			time.AfterFunc(10*time.Millisecond, func() { theirs.Close() })
			if n, err := io.Copy(io.Discard, ours); !errors.Is(err, ErrCut) || n > int64(fill) {
				t.Errorf("%d bytes, then %v", n, err)
			}
		})
	}
}

// A side that gave up a stream holds nothing of it for long, though the other side goes on. This cannot run on synctest's clock:
// yamux keeps timers in a pool, where the other tests would find that clock's.
func TestGivenUpIsForgotten(t *testing.T) {
	near, far := net.Pipe()
	client, err := newSession(near, yamux.Client, window, 10*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	bridge, err := Server(far)
	if err != nil {
		t.Fatal(err)
	}
	defer bridge.Close()
	ours, err := client.Open()
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := bridge.Accept()
	if err != nil {
		t.Fatal(err)
	}
	ours.Close()
	polltest.Await(t, "the stream is forgotten", func() bool { return client.Count() == 0 })
	if _, err := theirs.Stream.Read(make([]byte, 1)); err == nil {
		t.Error("the other side was not told")
	}
}

func TestRefused(t *testing.T) {
	client, bridge := pair(t)
	for _, code := range []Code{Unreachable, Forbidden, TooMany, 77} {
		ours, err := client.Open()
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			if theirs, err := bridge.Accept(); err == nil {
				theirs.Answer(code)
				theirs.Close()
			}
		}()
		_, err = ours.Read(make([]byte, 1))
		if !errors.Is(err, code) || err.Error() == "" {
			t.Errorf("%v, want %v", err, code)
		}
		ours.Close()
	}
	if !errors.Is(Forbidden, socks5.NotAllowed) || errors.Is(TooMany, socks5.NotAllowed) {
		t.Error("a SOCKS5 client would be told something else")
	}
}

// A ping ends the session: its answers would cost a goroutine each.
func TestPing(t *testing.T) {
	ours, theirs := net.Pipe()
	bridge, err := Server(theirs)
	if err != nil {
		t.Fatal(err)
	}
	defer bridge.Close()
	client, err := yamux.Client(ours, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	go client.Ping()
	<-bridge.Done()
}

// A client that opens streams beyond all measure loses its link.
func TestTooManyStreams(t *testing.T) {
	client, bridge := pair(t)
	go func() {
		for {
			if _, err := client.yamux.OpenStream(); err != nil {
				return
			}
		}
	}()
	for i := 0; ; i++ {
		if _, err := bridge.Accept(); errors.Is(err, TooMany) {
			break
		} else if err != nil || i > 3*MaxStreams {
			t.Fatalf("%d streams, %v", i, err)
		}
	}
	<-client.Done()
}

func TestOwnLimit(t *testing.T) {
	client, bridge := pair(t)
	go func() {
		for {
			if _, err := bridge.Accept(); err != nil {
				return
			}
		}
	}()
	for range MaxStreams {
		if _, err := client.Open(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := client.Open(); !errors.Is(err, TooMany) {
		t.Errorf("one too many: %v", err)
	}
}

func FuzzRequest(f *testing.F) {
	name, _ := socks5.NewTarget("web.example", 443)
	six, _ := socks5.NewTarget("2001:db8::1", 53)
	f.Add(Request{Kind: Connect, To: name}.append(nil))
	f.Add(Request{Kind: Datagrams, Flow: 7, To: six}.append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := readRequest(bytes.NewReader(b))
		if err != nil {
			return
		}
		again, err := readRequest(bytes.NewReader(r.append(nil)))
		if err != nil || again != r {
			t.Errorf("%+v became %+v, %v", r, again, err)
		}
	})
}

// The guard finds each header, however the bytes are cut.
func FuzzGuard(f *testing.F) {
	ping := []byte{0, typePing, 0, 1, 0, 0, 0, 0, 0, 0, 0, 9}
	data := append([]byte{0, typeData, 0, 0, 0, 0, 0, 1, 0, 0, 0, 12}, ping...)
	f.Add(append(bytes.Clone(data), ping...), uint8(5))
	f.Add(data, uint8(1))
	f.Fuzz(func(t *testing.T, b []byte, cut uint8) {
		whole := &guard{Conn: reader{bytes.NewReader(b)}}
		_, want := whole.Read(make([]byte, len(b)+1))
		parts := &guard{Conn: reader{bytes.NewReader(b)}}
		var got error
		for got == nil {
			_, got = parts.Read(make([]byte, int(cut)+1))
		}
		if (want == errPing) != (got == errPing) {
			t.Errorf("at once %v, in parts %v", want, got)
		}
	})
}

type reader struct{ io.Reader }

func (reader) Write([]byte) (int, error)        { return 0, io.ErrClosedPipe }
func (reader) Close() error                     { return nil }
func (reader) LocalAddr() net.Addr              { return nil }
func (reader) RemoteAddr() net.Addr             { return nil }
func (reader) SetDeadline(time.Time) error      { return nil }
func (reader) SetReadDeadline(time.Time) error  { return nil }
func (reader) SetWriteDeadline(time.Time) error { return nil }
