package pacing

import (
	"testing"
	"time"
)

func TestBound(t *testing.T) {
	const rate = 1000
	lossy := sample{delivered: rate, sent: 100, lost: 10}
	// The program wrote little so far, and a round trip takes a tenth of a second.
	little := sample{rtt: time.Second / 10, least: time.Second / 10, delivered: rate, segment: 1000}
	burst, free, queued := little, little, little
	burst.sent, burst.lost = 60, 10
	free.sent = fullRound
	queued.sent, queued.rtt = fullRound, little.least*5/4
	for _, c := range []struct {
		name   string
		rounds []sample // sent and lost are those of the round
		want   uint64
	}{
		{"without a loss", []sample{{delivered: rate, sent: 100}, {delivered: rate, sent: 100}}, 0},
		{"few losses", []sample{{delivered: rate, sent: 4, lost: 2}}, 0},
		{"a small share", []sample{{delivered: rate, sent: 1000, lost: 20}}, 0},
		{"losses", []sample{lossy}, 1250},
		{"a larger share", []sample{{delivered: rate, sent: 1000, lost: 21}}, 1250},
		{"an earlier rate", []sample{{delivered: 2 * rate, sent: 100}, lossy}, 2500},
		{"a forgotten rate", append(append([]sample{{delivered: 2 * rate, sent: 1}}, make([]sample, rounds-1)...), lossy), 1250},
		{"a full round", []sample{lossy, {delivered: rate, sent: fullRound}}, 1250 + 78},
		{"an idle round", []sample{lossy, {delivered: rate, sent: fullRound - 1}}, 1250},
		{"losses again", []sample{lossy, {delivered: 1200, sent: 100}, lossy}, 1500},
		{"a burst after little", []sample{burst}, 100_000 + 25_000},
		{"a full round without a queue", []sample{burst, free}, 125_000 + 31_250},
		{"a full round with a queue", []sample{burst, queued}, 125_000 + 7_812},
		{"no overflow", []sample{{delivered: 1 << 40, sent: 100, lost: 10}}, most},
	} {
		var b bound
		var total sample
		for _, s := range c.rounds {
			sent, lost := total.sent+s.sent, total.lost+s.lost
			total = s
			total.sent, total.lost = sent, lost
			before := b.rate
			if changed := b.take(total); changed != (b.rate != before) {
				t.Errorf("%s: the bound went from %d to %d: changed %v", c.name, before, b.rate, changed)
			}
		}
		if b.rate != c.want {
			t.Errorf("%s: %d bytes a second, want %d", c.name, b.rate, c.want)
		}
	}
}
