package split

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"heddle/internal/wgtest"
	"heddle/schedule"
)

const loadText = "the server is under load"

// loaded is the warning that the server is under load, or "".
func loaded(s Status) string {
	for _, w := range s.Warnings {
		if strings.Contains(w, loadText) {
			return w
		}
	}
	return ""
}

func TestServersThatDemandCookies(t *testing.T) {
	for name, overload := range map[string]func(*testing.T, *wireguard){
		"wireguard-go under load": func(_ *testing.T, w *wireguard) { wgtest.Overload(w.device) },
		"another implementation": func(t *testing.T, w *wireguard) {
			w.address = wgtest.NewGuard(w.client.PeerPublic[:]).Front(t, w.address)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := startWireguard(t, true)
			overload(t, w)
			f, err := NewSession(Options{Session: "office", To: w.address.String(), Via: loopbackPaths(3),
				Schedule: schedule.Config{Name: "round-robin", Every: schedule.Every{Packets: 20}}})
			if err != nil {
				t.Fatal(err)
			}
			b, err := NewBind(f, w.client)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if err := f.Prove(ctx, func(text string) { t.Log(text) }); err != nil {
				t.Fatal("the paths are not proved: ", err)
			}
			began := time.Now()
			w.download(t, w.connect(t, b), 64<<10) // fits the buffers on the way, so that no loss slows it down
			t.Logf("64 KiB after %v", time.Since(began))
			s := b.Status()
			if loaded(s) == "" {
				t.Errorf("status warns only of %q", s.Warnings)
			}
			for _, p := range s.Paths {
				if p.Down.Packets == 0 {
					t.Errorf("path %s carried nothing: %s %s", p.Name, p.State, p.Why)
				}
			}
		})
	}
}

// A server that never takes its own cookie gets a few messages, and the user is told what it asks for.
func TestCookieThatTheServerDoesNotTake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, public := keyPair(t)
		private, _ := keyPair(t)
		f, paths := closedFake(t, 1, nil)
		b, err := NewBind(f, Keys{Private: private, PeerPublic: public})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		told, ended := "", make(chan error)
		go func() { ended <- f.Prove(ctx, func(text string) { told = text; cancel() }) }()
		sent := 0
		for guard := wgtest.NewGuard(public[:]); ctx.Err() == nil; time.Sleep(time.Millisecond) {
			for _, d := range paths[0].take() {
				sent++
				paths[0].put(fakeServer, guard.Reply(d, "somewhere else"))
			}
		}
		if err := <-ended; err == nil || !strings.Contains(told, loadText) {
			t.Errorf("%v; it waits for %q", err, told)
		}
		if sent != 1+cookieResends {
			t.Errorf("%d messages for one question", sent)
		}
		if loaded(b.Status()) == "" {
			t.Error("status does not say that the server is under load")
		}
	})
}

// cookied is a session whose paths are in memory and whose server demands cookies.
type cookied struct {
	t     *testing.T
	f     *Session
	paths []*fakePath
	guard *wgtest.Guard
	own   *questioner // makes handshakes as wireguard-go does
}

func newCookied(t *testing.T) *cookied {
	_, public := keyPair(t)
	private, _ := keyPair(t)
	keys := Keys{Private: private, PeerPublic: public}
	f, paths := closedFake(t, 2, nil)
	if _, err := NewBind(f, keys); err != nil {
		t.Fatal(err)
	}
	own, err := newQuestioner(keys)
	if err != nil {
		t.Fatal(err)
	}
	openFake(t, f)
	return &cookied{t, f, paths, wgtest.NewGuard(public[:]), own}
}

// prove makes both paths count as up, so that no more questions are asked.
func (c *cookied) prove() {
	c.f.mu.Lock()
	defer c.f.mu.Unlock()
	for _, m := range c.f.members {
		m.probe.sent = time.Time{}
		m.Health.Answered(time.Now(), time.Millisecond)
	}
	c.f.judge(time.Now())
	for _, p := range c.paths {
		p.take()
	}
}

// one gives the one message that path i sent since it was last asked.
func (c *cookied) one(i int) []byte {
	c.t.Helper()
	synctest.Wait()
	sent := c.paths[i].take()
	if len(sent) != 1 {
		c.t.Fatalf("%d messages on path %d, want 1", len(sent), i)
	}
	return sent[0]
}

// none checks that path i sent nothing.
func (c *cookied) none(i int, when string) {
	c.t.Helper()
	synctest.Wait()
	if n := len(c.paths[i].take()); n != 0 {
		c.t.Errorf("%d messages on path %d %s", n, i, when)
	}
}

func (c *cookied) reply(i int, message []byte, source string) {
	c.paths[i].put(fakeServer, c.guard.Reply(message, source))
}

// handshake sends an initiation of the session's own by path i.
func (c *cookied) handshake(i int) []byte {
	c.t.Helper()
	message, _, err := c.own.question(time.Now())
	if err != nil {
		c.t.Fatal(err)
	}
	before := bytes.Clone(message)
	c.f.mu.Lock()
	c.f.sendOn(c.f.members[i], time.Now(), [][]byte{message})
	c.f.mu.Unlock()
	if !bytes.Equal(message, before) {
		c.t.Error("the sender's buffer was changed")
	}
	return c.one(i)
}

func unsigned(message []byte) bool {
	return bytes.Equal(message[len(message)-macLength:], make([]byte, macLength))
}

func TestEachPathHasItsOwnCookie(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCookied(t)
		c.prove()
		for i, source := range []string{"a", "b"} {
			first := c.handshake(i)
			if !unsigned(first) {
				t.Fatalf("path %d has a cookie before the server gave it one", i)
			}
			c.reply(i, first, source)
			again := c.one(i)
			if !c.guard.Valid(again, source) || !bytes.Equal(again[:len(again)-macLength], first[:len(first)-macLength]) {
				t.Errorf("path %d did not send the message again with its cookie", i)
			}
			if later := c.handshake(i); !c.guard.Valid(later, source) {
				t.Errorf("path %d forgot its cookie", i)
			}
			c.none(1-i, "though the cookie was for another path")
		}
		if w := loaded(c.f.Status("wireguard")); w == "" {
			t.Error("no word of the server's load")
		}
		time.Sleep(cookieLife)
		for i := range c.paths {
			c.paths[i].take()
			if !unsigned(c.handshake(i)) {
				t.Errorf("the cookie of path %d outlived its time", i)
			}
		}
		if w := loaded(c.f.Status("wireguard")); w != "" {
			t.Errorf("two minutes later status says %q", w)
		}
	})
}

func TestQuestionIsAskedAgainWithACookie(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCookied(t)
		var first []byte
		for first == nil { // the session asks on its own
			time.Sleep(tendEvery)
			synctest.Wait()
			if sent := c.paths[0].take(); len(sent) > 0 {
				first = sent[0]
			}
		}
		time.Sleep(20 * time.Millisecond)
		c.reply(0, first, "a")
		if again := c.one(0); !c.guard.Valid(again, "a") {
			t.Error("the question has no cookie")
		}
		c.f.mu.Lock()
		defer c.f.mu.Unlock()
		if sent := c.f.members[0].probe.sent; !sent.Equal(time.Now()) {
			t.Errorf("the answer's round trip is counted from %v ago", time.Since(sent))
		}
	})
}

func TestHostileCookieReplies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCookied(t)
		c.prove()
		first := c.handshake(0)
		other := c.handshake(0)
		reply := c.guard.Reply(first, "a")
		for at := range reply {
			forged := slices.Clone(reply)
			forged[at] ^= 1
			c.paths[0].put(fakeServer, forged)
		}
		swapped := slices.Clone(c.guard.Reply(other, "a"))
		copy(swapped[4:8], reply[4:8])
		c.paths[0].put(fakeServer, swapped)
		c.paths[1].put(fakeServer, reply) // on a path that did not send the message
		c.none(0, "for forged replies")
		c.none(1, "for another path's reply")
		if loaded(c.f.Status("wireguard")) != "" {
			t.Error("a forged reply counts as load")
		}
		for range 20 { // one who hears the message can make replies that open
			c.reply(0, first, "a")
		}
		synctest.Wait()
		if n := len(c.paths[0].take()); n != cookieResends {
			t.Errorf("one message was sent again %d times, want %d", n, cookieResends)
		}
	})
}

// Below the required number of paths nothing of the session leaves, whatever the server asks for.
func TestNoCookieForAStoppedSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCookied(t)
		c.prove()
		first := c.handshake(0)
		c.f.mu.Lock()
		c.f.members[1].Health.Fail("gone")
		c.f.judge(time.Now())
		c.f.mu.Unlock()
		c.reply(0, first, "a")
		c.none(0, "although one of two required paths is gone")
	})
}

// A relay sends what its program signed with a cookie by the path that the cookie came by, whatever the schedule says.
func TestRelayKeepsToThePathOfACookie(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, public := keyPair(t)
		private, _ := keyPair(t)
		f, paths := closedFake(t, 2, func(o *Options) {
			o.Schedule = schedule.Config{Name: "round-robin", Every: schedule.Every{Packets: 1}}
		})
		openFake(t, f)
		guard := wgtest.NewGuard(public[:])
		program, err := newQuestioner(Keys{Private: private, PeerPublic: public})
		if err != nil {
			t.Fatal(err)
		}
		var own jar
		// shake makes the program's next message, with the cookie that it has.
		shake := func() []byte {
			message, _, err := program.question(time.Now())
			if err != nil {
				t.Fatal(err)
			}
			own.sign(time.Now(), message)
			return message
		}
		// took returns by which path the only datagram went.
		took := func() int {
			t.Helper()
			synctest.Wait()
			a, b := paths[0].take(), paths[1].take()
			if len(a)+len(b) != 1 {
				t.Fatalf("%d and %d datagrams, want one", len(a), len(b))
			}
			return len(b)
		}
		first := shake()
		f.Send([][]byte{first})
		at := took()
		reply := guard.Reply(first, "source")
		paths[1-at].put(fakeServer, reply) // forged: the message did not go there
		paths[at].put(fakeServer, reply)
		synctest.Wait()
		if own.cookie, _ = program.cookie(reply, first); own.cookie == nil {
			t.Fatal("no cookie")
		}
		own.since = time.Now()
		for range 4 {
			f.Send([][]byte{shake()})
			if took() != at {
				t.Fatal("a message went where the server does not take its cookie")
			}
			f.Send(numbered(0, 1))
			took()
		}
		if loaded(f.Status("relay")) == "" {
			t.Error("no word of the server's load")
		}
		f.Send([][]byte{numbered(0, 1)[0], shake()})
		synctest.Wait()
		if sent := paths[at].take(); len(sent) == 0 || !isSigned(sent[len(sent)-1]) {
			t.Error("the second of two datagrams went elsewhere")
		}
		paths[1-at].take()
		f.mu.Lock()
		f.members[at].Health.Fail("gone")
		f.judge(time.Now())
		f.mu.Unlock()
		own.cookie = nil
		f.Send([][]byte{shake()})
		if n := len(paths[at].take()); n != 0 {
			t.Error("a message went by a path that is gone")
		}
	})
}

// A WireGuard program behind a relay comes up with a server under load.
func TestRelayToAServerUnderLoad(t *testing.T) {
	w := startWireguard(t, true)
	wgtest.Overload(w.device)
	r := startRelay(t, w.address, func(o *RelayOptions) { o.Schedule.Every.Packets = 1 })
	w.download(t, w.connectPlain(t, r.Addr()), 64<<10)
}
