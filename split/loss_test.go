package split

import (
	"encoding/binary"
	"math"
	"testing"
	"time"
)

func transport(index uint32, counter uint64) []byte {
	d := binary.LittleEndian.AppendUint32(nil, transportType)
	d = binary.LittleEndian.AppendUint32(d, index)
	d = binary.LittleEndian.AppendUint64(d, counter)
	return append(d, make([]byte, 16)...)
}

func TestLossIsFoundInTheCounters(t *testing.T) {
	type packet struct {
		path    int
		counter uint64
	}
	start := time.Unix(1000, 0)
	for name, c := range map[string]struct {
		packets []packet
		want    [2]float64 // NaN where unknown
	}{
		"none":            {[]packet{{0, 0}, {0, 1}, {1, 2}, {1, 3}}, [2]float64{0, 0}},
		"one of four":     {[]packet{{0, 0}, {0, 1}, {0, 3}}, [2]float64{0.25, math.NaN()}},
		"late, not lost":  {[]packet{{0, 0}, {1, 3}, {0, 1}, {0, 2}}, [2]float64{0, 0}},
		"late, one lost":  {[]packet{{0, 0}, {1, 3}, {0, 2}, {1, 4}}, [2]float64{0, 1.0 / 3}},
		"mid of a gap":    {[]packet{{0, 0}, {0, 5}, {0, 3}}, [2]float64{0.5, math.NaN()}},
		"counts from any": {[]packet{{0, 900}, {0, 901}}, [2]float64{0, math.NaN()}},
		"a large gap":     {[]packet{{0, 0}, {0, 1 << 16}}, [2]float64{65535.0 / 65537, math.NaN()}},
		"a forged jump":   {[]packet{{0, 0}, {0, 1<<16 + 1}, {0, 1<<16 + 2}}, [2]float64{0, math.NaN()}},
		"by its own path": {[]packet{{0, 0}, {1, 1}, {1, 3}, {0, 4}}, [2]float64{0, 1.0 / 3}},
		"filled in parts": {[]packet{{0, 0}, {0, 5}, {0, 1}, {1, 4}, {0, 2}, {0, 3}}, [2]float64{0, 0}},
		"old and twice":   {[]packet{{0, 5}, {0, 6}, {0, 4}, {0, 6}, {0, 7}}, [2]float64{0, math.NaN()}},
	} {
		m := newLossMeter(2)
		for _, p := range c.packets {
			m.arrived(start, p.path, transport(7, p.counter))
		}
		for i, want := range c.want {
			got := m.share(start.Add(2*lossSettles), i)
			switch {
			case got == nil && math.IsNaN(want):
			case got == nil || math.Abs(*got-want) > 1e-9:
				t.Errorf("%s, path %d: %v, want %v", name, i, got, want)
			}
		}
	}
}

// A late packet of a slower path is no loss, up to a second; after that it does not take the loss back.
func TestGapsSettleAfterASecond(t *testing.T) {
	for late, want := range map[time.Duration]float64{lossSettles - 1: 0, lossSettles: 0.25} {
		m, start := newLossMeter(1), time.Unix(1000, 0)
		m.arrived(start, 0, transport(7, 0))
		m.arrived(start, 0, transport(7, 2))
		m.arrived(start.Add(late), 0, transport(7, 1))
		if got := m.share(start.Add(2*lossSettles), 0); got == nil || math.Abs(*got-want) > 1e-9 {
			t.Errorf("the missing packet came after %v: loss %v, want %v", late, *got, want)
		}
	}
}

func TestNewKeyPairCountsAnew(t *testing.T) {
	m, start := newLossMeter(1), time.Unix(1000, 0)
	for _, p := range []struct {
		index   uint32
		counter uint64
	}{{7, 5000}, {7, 5001}, {8, 0}, {8, 1}, {9, 9000}, {9, 9001}} {
		m.arrived(start, 0, transport(p.index, p.counter))
	}
	if got := m.share(start.Add(2*lossSettles), 0); got == nil || *got != 0 {
		t.Errorf("loss %v, and nothing was lost", *got)
	}
}

func TestLossIgnoresOtherProtocols(t *testing.T) {
	m := newLossMeter(1)
	for _, d := range [][]byte{nil, {4}, make([]byte, 1200), []byte("GET / HTTP/1.1\r\nHost: example.org\r\n\r\n")} {
		m.arrived(time.Unix(1, 0), 0, d)
	}
	if got := m.share(time.Unix(9, 0), 0); got != nil {
		t.Errorf("loss %v of a protocol without counters", *got)
	}
}

func FuzzLoss(f *testing.F) {
	f.Add(transport(1, 2), transport(1, 1<<63))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		m := newLossMeter(1)
		for range 300 {
			m.arrived(time.Unix(1, 0), 0, a)
			m.arrived(time.Unix(1, 0), 0, b)
		}
		if len(m.gaps) > lossGaps {
			t.Errorf("%d gaps are kept", len(m.gaps))
		}
	})
}
