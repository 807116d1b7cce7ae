package random

import (
	"bytes"
	"context"
	"errors"
	mrand "math/rand/v2"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"heddle/disguise/cover"
	"heddle/disguise/cover/covertest"
	"heddle/observe/inspect"
)

// session is both ends of one connection, without a hello.
type session struct {
	client, server         covertest.Feed
	clientConn, serverConn *covertest.Conn
	ended                  chan error // of the client, then of the server, in any order
}

func factoryOf(t *testing.T, o cover.Options) cover.Factory {
	t.Helper()
	f, err := cover.New(Name, o)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// start lets the bridge read the client's prefix, as it does together with the hello.
func start(ctx context.Context, t *testing.T, clients, bridge cover.Options) *session {
	t.Helper()
	s := &session{ended: make(chan error, 2)}
	s.clientConn, s.serverConn = covertest.Pipe()
	client, parameters, err := factoryOf(t, clients).Client()
	if err != nil {
		t.Fatal(err)
	}
	f := factoryOf(t, bridge)
	server, err := f.Server(parameters)
	if err != nil {
		t.Fatal(err)
	}
	carry := func(c cover.Cover, conn net.Conn, feed cover.Feed) {
		err := c.Carry(ctx, conn, feed)
		conn.Close()
		s.ended <- err
	}
	go carry(client, s.clientConn, &s.client)
	go carry(server, &led{Conn: s.serverConn, lead: f.Leads()[0]}, &s.server)
	return s
}

// led drops the first bytes that arrive.
type led struct {
	*covertest.Conn
	lead int
}

func (c *led) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	dropped := min(c.lead, n)
	c.lead -= dropped
	return copy(b, b[dropped:n]), err
}

func (s *session) wait(t *testing.T) {
	t.Helper()
	for range 2 {
		if err := <-s.ended; err != nil {
			t.Errorf("an end failed: %v", err)
		}
	}
}

func noise(n int) []byte {
	b := make([]byte, n)
	r := mrand.NewChaCha8([32]byte{1})
	_, _ = r.Read(b)
	return b
}

func TestDeliversBothWays(t *testing.T) {
	for _, prefix := range []string{"", "printable"} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			o := cover.Options{Seed: []byte("a"), Args: map[string]string{"prefix": prefix}}
			s := start(ctx, t, o, o)
			up, down := noise(3_000_000), noise(500)
			s.client.Send(up)
			s.server.Send(down)
			if !s.server.Await(ctx, len(up)) || !s.client.Await(ctx, len(down)) {
				t.Fatal("not all arrived")
			}
			if !bytes.Equal(s.server.Received(), up) || !bytes.Equal(s.client.Received(), down) {
				t.Error("other bytes arrived")
			}
			if n := len(s.clientConn.Sent()); n > len(up)*1002/1000 {
				t.Errorf("%d bytes on the wire for %d: large blocks need no padding", n, len(up))
			}
			cancel()
			for range 2 {
				if err := <-s.ended; !errors.Is(err, context.Canceled) {
					t.Errorf("ended with %v", err)
				}
			}
		})
	}
}

func TestSmallWritesLeaveAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		s := start(ctx, t, cover.Options{}, cover.Options{})
		for i := range 20 {
			time.Sleep(time.Second)
			began := time.Now()
			s.client.Send(noise(100))
			synctest.Wait()
			writes := s.clientConn.Writes()
			if len(writes) != i+1 {
				t.Fatalf("%d writes after %d", len(writes), i+1)
			}
			if w := writes[i]; !w.At.Equal(began) || i > 0 && (len(w.Data) < 140 || len(w.Data) > 140+mostSmall) {
				t.Errorf("%d bytes after %v", len(w.Data), w.At.Sub(began))
			}
		}
		time.Sleep(time.Hour)
		if len(s.clientConn.Writes()) != 20 || len(s.serverConn.Writes()) != 0 {
			t.Error("an idle connection sends")
		}
		cancel()
		<-s.ended
		<-s.ended
	})
}

// Many small writes of a program leave in few blocks.
func TestManySmallWritesLeaveTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		s := start(ctx, t, cover.Options{}, cover.Options{})
		const pieces = 1000
		for range pieces {
			s.client.Send(noise(10))
			time.Sleep(20 * time.Microsecond)
		}
		if !s.server.Await(ctx, 10*pieces) {
			t.Fatal("not all arrived")
		}
		if n := len(s.clientConn.Writes()); n > pieces/5 {
			t.Errorf("%d writes for %d pieces", n, pieces)
		}
		cancel()
		<-s.ended
		<-s.ended
	})
}

func TestLimitOfBytesHoldsEachWay(t *testing.T) {
	const limit = 15_000
	for name, bridge := range map[string]cover.Life{"client's": {}, "bridge's": {Bytes: 12_000}} {
		for _, prefix := range []string{"", "printable"} {
			t.Run(name+prefix, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					args := map[string]string{"prefix": prefix}
					s := start(t.Context(), t, cover.Options{Life: cover.Life{Bytes: limit}, Args: args}, cover.Options{Life: bridge, Args: args})
					s.client.Send(noise(100))
					synctest.Wait()
					s.server.Send(noise(100_000))
					s.wait(t)
					most := limit
					if bridge.Bytes != 0 {
						most = int(bridge.Bytes)
					}
					down := len(s.serverConn.Sent())
					if down > most || down < most-smallest {
						t.Errorf("the bridge sent %d bytes of %d", down, most)
					}
					if n := len(s.client.Received()); n < most-10*smallest-1000 {
						t.Errorf("%d of %d bytes were useful", n, down)
					}
				})
				synctest.Test(t, func(t *testing.T) {
					args := map[string]string{"prefix": prefix}
					s := start(t.Context(), t, cover.Options{Life: cover.Life{Bytes: limit}, Args: args}, cover.Options{Life: bridge, Args: args})
					s.client.Send(noise(100_000))
					s.wait(t)
					if up := len(s.clientConn.Sent()); up > limit || up < limit-smallest {
						t.Errorf("the client sent %d bytes", up)
					}
				})
			})
		}
	}
}

func TestAgeAndIdle(t *testing.T) {
	for name, c := range map[string]struct {
		life        cover.Life
		least, most time.Duration
	}{
		"age":  {cover.Life{Age: time.Hour}, 30 * time.Minute, time.Hour},
		"idle": {cover.Life{Idle: time.Minute}, 10*30*time.Second + time.Minute, 10*30*time.Second + time.Minute + time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				s := start(t.Context(), t, cover.Options{Life: c.life}, cover.Options{})
				for range 10 {
					time.Sleep(30 * time.Second)
					s.client.Send(noise(10))
				}
				s.wait(t)
				if took := time.Since(began); took < c.least || took > c.most {
					t.Errorf("it ended after %v", took)
				}
				if n := len(s.server.Received()); n != 100 {
					t.Errorf("%d bytes arrived", n)
				}
			})
		})
	}
}

func TestEndsWithItsLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t.Context(), t, cover.Options{}, cover.Options{})
		ended := errors.New("the link ended")
		s.client.Send(noise(100))
		synctest.Wait()
		s.client.End(ended)
		errs := []error{<-s.ended, <-s.ended}
		if !errors.Is(errs[0], ended) && !errors.Is(errs[1], ended) || errs[0] != nil && errs[1] != nil {
			t.Errorf("%v", errs)
		}
		if len(s.server.Received()) != 100 {
			t.Error("the last bytes are lost")
		}
	})
}

// A link may end while its peer still sends. The peer gets the last bytes, and no reset.
func TestEndsWhilePeerSends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t.Context(), t, cover.Options{}, cover.Options{})
		ended := errors.New("the link ended")
		s.clientConn.Stall(time.Second)
		s.client.Send(noise(1_000_000))
		s.server.Send(noise(100))
		synctest.Wait()
		s.server.End(ended)
		first := <-s.ended
		at := time.Now()
		second := <-s.ended
		if !time.Now().Equal(at) {
			t.Error("the bridge stopped reading before the client stopped sending")
		}
		if !errors.Is(first, ended) && !errors.Is(second, ended) || first != nil && second != nil {
			t.Errorf("%v, %v", first, second)
		}
		if len(s.client.Received()) != 100 {
			t.Error("the last bytes are lost")
		}
	})
}

// A peer that takes nothing keeps no connection alive for long.
func TestPeerThatDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := covertest.Pipe()
		c, _, err := factoryOf(t, cover.Options{Life: cover.Life{Age: time.Minute}}).Client()
		if err != nil {
			t.Fatal(err)
		}
		var feed covertest.Feed
		feed.Send(noise(1000))
		began := time.Now()
		_ = c.Carry(t.Context(), a, &feed)
		if took := time.Since(began); took > 2*time.Minute {
			t.Errorf("it took %v", took)
		}
		a.Close()
		b.Close()
	})
}

func TestPrefixPassesTheRule(t *testing.T) {
	for _, c := range []struct {
		prefix string
		passes bool
	}{{"", false}, {"printable", true}} {
		passed := 0
		const runs = 50
		for range runs {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				o := cover.Options{Args: map[string]string{"prefix": c.prefix}}
				s := start(ctx, t, o, o)
				fill := noise(600)
				s.client.Send(fill)
				s.server.Send(fill)
				synctest.Wait()
				for _, conn := range []*covertest.Conn{s.clientConn, s.serverConn} {
					first := conn.Writes()[0].Data
					// The feed's blocks are clear, so random bytes stand for their content.
					lead := len(c.prefix) * printableBytes / len(printable)
					_, _ = mrand.NewChaCha8([32]byte{byte(len(first))}).Read(first[lead:])
					if inspect.Exemption(first) != "" {
						passed++
					}
				}
				cancel()
				<-s.ended
				<-s.ended
			})
		}
		if c.passes && passed != 2*runs || !c.passes && passed > runs/5 {
			t.Errorf("prefix %q: %d of %d first packets pass", c.prefix, passed, 2*runs)
		}
	}
}

func TestParametersOfStrangers(t *testing.T) {
	f := factoryOf(t, cover.Options{Life: cover.Life{Bytes: 20_000}})
	for _, bad := range [][]byte{nil, {Number}, {2, 0, 0, 0, 0}, {Number, 0, 0, 0, 0, 0}, bytes.Repeat([]byte{Number}, 255)} {
		if _, err := f.Server(bad); err == nil {
			t.Errorf("%x are accepted", bad)
		}
	}
	for asked, want := range map[byte]int64{0: 20_000, 1: cover.MinBytes} {
		c, err := f.Server([]byte{Number, 0, 0, 0, asked})
		if err != nil || c.(*connection).life.Bytes != want {
			t.Errorf("asked for %d: %v, %v", asked, c, err)
		}
	}
	if c, err := f.Server([]byte{Number, 255, 255, 255, 255}); err != nil || c.(*connection).life.Bytes != 20_000 {
		t.Errorf("a client lifts the bridge's limit: %v, %v", c, err)
	}
}

func TestOptions(t *testing.T) {
	for _, bad := range []cover.Options{
		{Args: map[string]string{"prefix": "png"}},
		{Args: map[string]string{"trace": "1"}},
		{Datagrams: true},
		{Life: cover.Life{Bytes: 100}},
		{Life: cover.Life{Age: -1}},
	} {
		if _, err := cover.New(Name, bad); err == nil {
			t.Errorf("%+v are accepted", bad)
		}
	}
	if _, err := cover.New("none", cover.Options{}); err == nil {
		t.Error("an unknown cover")
	}
}

func TestShapeBelongsToTheBridge(t *testing.T) {
	if shapeOf([]byte("a")) != shapeOf([]byte("a")) || shapeOf([]byte("a")) == shapeOf([]byte("b")) {
		t.Error("the shape does not follow from the seed alone")
	}
}

func TestPace(t *testing.T) {
	p := pace{bytes: startPace}
	for _, c := range []struct {
		name string
		rate float64 // bytes a second; 0 takes all at once
		want [2]int
	}{{"loopback", 0, [2]int{mostPace, mostPace}}, {"0.7 Mbit/s", 87_500, [2]int{leastPace, leastPace}}, {"5.6 Mbit/s", 700_000, [2]int{13_000, 15_000}},
		{"100 Mbit/s", 12_500_000, [2]int{240_000, 260_000}}} {
		for range 20 {
			took := time.Duration(0)
			if c.rate > 0 {
				took = time.Duration(float64(p.bytes) / c.rate * float64(time.Second))
			}
			p.wrote(p.bytes, took)
		}
		if p.bytes < c.want[0] || p.bytes > c.want[1] {
			t.Errorf("%s: %d bytes", c.name, p.bytes)
		}
	}
}
