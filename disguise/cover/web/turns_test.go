package web

import (
	"bytes"
	"io"
	"net/http/httptest"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"heddle/disguise/cover"
)

// clientOf returns the visitor of a client inside TLS, and what its link has to send.
func clientOf(t *testing.T, bridge *factory, client *factory) (*visitor, *veiled) {
	t.Helper()
	_, parameters, err := client.Client()
	if err != nil {
		t.Fatal(err)
	}
	end, err := bridge.Server(parameters)
	if err != nil {
		t.Fatal(err)
	}
	v, feed := &visitor{factory: bridge}, newVeiled(2, 1)
	v.begin()
	v.welcome(feed, end.(*guest))
	return v, feed
}

// While a part waits for the network no other is filled: what comes meanwhile would wait for its padding.
func TestPartsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, bridge := sealedPair(t, cover.Life{})
		v, feed := clientOf(t, bridge, client)
		in, slow := io.Pipe()
		send := func(w io.Writer) {
			var none time.Duration
			if err := v.sendPart(w, make([]byte, partSize), &none); err != nil {
				t.Error(err)
			}
		}
		go send(slow)
		synctest.Wait()
		var second bytes.Buffer
		go send(&second)
		synctest.Wait()
		feed.Send(noise(1000))
		if v.parts != 1 || second.Len() != 0 {
			t.Errorf("%d parts are filled while the first waits", v.parts)
		}
		if _, err := io.ReadFull(in, make([]byte, partSize)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if v.parts != 2 || second.Len() != partSize || feed.Waiting() != 0 {
			t.Errorf("after it %d parts are filled, and %d bytes wait", v.parts, feed.Waiting())
		}
	})
}

// A part waits for more to carry as long as the connection carries something.
func TestPartsWaitForMore(t *testing.T) {
	for _, c := range []struct {
		name        string
		idle, comes time.Duration // since something was carried, and until something comes
		want        time.Duration
	}{
		{"something comes", 0, 100 * time.Millisecond, 100 * time.Millisecond},
		{"nothing comes", 0, time.Hour, 200 * time.Millisecond},
		{"nothing was carried", mostPauses, 100 * time.Millisecond, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			client, bridge := sealedPair(t, cover.Life{})
			v, feed := clientOf(t, bridge, client)
			time.AfterFunc(c.comes, func() { feed.Send(noise(partSize)) })
			began, pauses := time.Now(), 200*time.Millisecond
			v.useful = began.Add(-c.idle)
			if err := v.sendPart(io.Discard, make([]byte, partSize), &pauses); err != nil {
				t.Fatal(err)
			}
			took := time.Since(began)
			if took < c.want || took > c.want+lookEvery || pauses != 200*time.Millisecond-took {
				t.Errorf("%s: it waits %v, and may yet wait %v", c.name, took, pauses)
			}
			if carried := v.useful.Equal(time.Now()); carried != (c.comes == c.want) {
				t.Errorf("%s: it carries something: %v", c.name, carried)
			}
		})
	}
}

// A reply to a client's script waits until something comes, and not beside the parts of other answers.
func TestSealedRepliesWait(t *testing.T) {
	for name, after := range map[string]time.Duration{"something comes": 40 * time.Millisecond, "nothing comes": time.Hour} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, bridge := sealedPairOf(t, cover.Life{}, shippedSite)
				v, feed := clientOf(t, bridge, client)
				v.useful = time.Now()
				it := bridge.items[slices.IndexFunc(bridge.items, func(it *item) bool { return it.URL == "/api/recent" })]
				it.WaitMS = 0
				time.AfterFunc(after, func() { feed.Send([]byte("!")) })
				time.AfterFunc(lookEvery, func() { // other parts are sent meanwhile
					select {
					case v.sending <- struct{}{}:
						<-v.sending
					default:
						t.Error("other answers wait for the reply")
					}
				})
				began := time.Now()
				if !v.carry(httptest.NewRecorder(), httptest.NewRequest("GET", it.URL, nil), it) {
					t.Fatal("the answer is that of the site")
				}
				took := time.Since(began)
				if comes := after < mostPauses; comes && (took < after || took > after+lookEvery) || !comes && (took < mostPauses/2 || took > mostPauses+lookEvery) {
					t.Errorf("it waits %v", took)
				}
			})
		})
	}
}

// A stranger's large answer pauses too, at any place, and a reply to a script. Others do not.
func TestStrangersAnswersPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, bridge := sealedPairOf(t, cover.Life{}, shippedSite)
		paused := 0
		for _, it := range bridge.items {
			if it.Method != "GET" || it.Status != 200 {
				continue
			}
			it.WaitMS = 0
			v := &visitor{factory: bridge, stranger: true}
			v.begin()
			began := time.Now()
			v.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", it.URL, nil))
			took := time.Since(began)
			least, most := time.Duration(0), time.Duration(0)
			switch {
			case it.replies():
				most = mostPauses
			case it.Fresh() != "" && it.carries() >= leastBulk:
				least, most = mostPauses/2, mostPauses
			}
			if took < least || took > most {
				t.Errorf("%s, which carries %d bytes, takes %v", it.URL, it.carries(), took)
			}
			if took > 0 {
				paused++
			}
		}
		if paused == 0 {
			t.Error("no answer pauses")
		}
	})
	synctest.Test(t, func(t *testing.T) {
		w := httptest.NewRecorder()
		s := &stalling{w, 5, time.Second}
		began, all := time.Now(), []byte("0123456789")
		for i, want := range []time.Duration{0, time.Second, time.Second} {
			part := all[i*4 : min(len(all), i*4+4)]
			if n, err := s.Write(part); n != len(part) || err != nil || time.Since(began) != want {
				t.Errorf("part %d: %d bytes after %v, %v", i, n, time.Since(began), err)
			}
		}
		if w.Body.String() != string(all) {
			t.Errorf("%s is written", w.Body)
		}
	})
}
