package recheck

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"heddle/pseudonym"
)

// within is how fast a revocation has to take effect.
const within = 5 * time.Second

// After a change that was missed, 50,000 pseudonyms with open connections take 50 questions. Each may be slow, and the first ones may have no
// answer: the connections of those that ended do so in time.
func TestManyConnections(t *testing.T) {
	const many, slow = 50_000, 20 * time.Millisecond
	for name, silent := range map[string]int{"all answer": 0, "the first is silent": 1} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				open, asked, begin := map[pseudonym.Label]bool{}, 0, time.Now()
				var labels, ended []pseudonym.Label
				c := &Checker{Open: func(l pseudonym.Label) bool { return open[l] }, End: func(l pseudonym.Label) { ended = append(ended, l) }}
				c.Ended = func(ctx context.Context, some []pseudonym.Label) (gone []pseudonym.Label, err error) {
					if asked++; asked <= silent {
						<-ctx.Done()
						return nil, ctx.Err()
					}
					time.Sleep(slow)
					for _, l := range some {
						if l[0] == 'r' {
							gone = append(gone, l)
						}
					}
					return gone, nil
				}
				for i := range many {
					l := pseudonym.Label(fmt.Sprint("v", i))
					if i%10_000 == 0 {
						l = pseudonym.Label(fmt.Sprint("r", i))
					}
					open[l] = true
					labels = append(labels, l)
				}
				c.Check(t.Context(), append(labels, "closed meanwhile")...)
				c.Wait()
				if took := time.Since(begin); len(ended) != many/10_000 || took > within || asked > many/AtOnce+1+silent {
					t.Errorf("%d ended after %v and %d questions", len(ended), took, asked)
				}
			})
		})
	}
}

// While nobody answers no connection ends, and those that may have to do so soon after somebody answers again.
func TestNobodyAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone, ended := errors.New("the database is away"), make(chan time.Time, 2)
		var asked [][]pseudonym.Label
		c := &Checker{Open: func(pseudonym.Label) bool { return true }, End: func(pseudonym.Label) { ended <- time.Now() }}
		back := time.Now().Add(time.Minute)
		c.Ended = func(_ context.Context, labels []pseudonym.Label) ([]pseudonym.Label, error) {
			asked = append(asked, labels)
			if time.Now().Before(back) {
				return nil, gone
			}
			return labels, nil
		}
		c.Check(t.Context(), "a")
		time.Sleep(time.Second)
		c.Check(t.Context(), "b")
		for range 2 {
			if late := (<-ended).Sub(back); late < 0 || late > within {
				t.Errorf("ended %v after the database is back", late)
			}
		}
		c.Wait()
		last := asked[len(asked)-1]
		if slices.Sort(last); !slices.Equal(last, []pseudonym.Label{"a", "b"}) {
			t.Errorf("asked for %v", last)
		}
		// Nobody asks once the process ends.
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		back = time.Now().Add(time.Minute)
		c.Check(ctx, "c")
		c.Wait()
	})
}
