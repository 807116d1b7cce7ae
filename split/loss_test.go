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
