package observe

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"

	"heddle/observe/inspect"
)

// Report is what each observer of a session learned. Its JSON fields are a stable interface.
type Report struct {
	Label     string     `json:"label"`
	Claim     string     `json:"claim"`  // what the figures mean
	Limits    []string   `json:"limits"` // of this report
	Start     time.Time  `json:"start"`
	Seconds   float64    `json:"seconds"` // first packet to last
	Packets   int        `json:"packets"`
	Bytes     int64      `json:"bytes"` // of IP packets
	Up        Traffic    `json:"up"`    // client to server
	Down      Traffic    `json:"down"`  // server to client
	Observers []Exposure `json:"observers"`
	Baselines []Report   `json:"baselines,omitempty"` // other ways to run the session
}

// Traffic is packets in one direction.
type Traffic struct {
	Packets    int     `json:"packets"`
	Bytes      int64   `json:"bytes"`       // of IP packets
	Share      float64 `json:"share"`       // of the bytes that all observers saw in this direction, 0 to 1
	LongestRun int     `json:"longest_run"` // most packets of this direction in a row, without another observer's
}

// Exposure is what one observer learned.
type Exposure struct {
	Observer   string         `json:"observer"`
	Files      []string       `json:"files"`
	Client     []string       `json:"client"`      // client addresses that the observer saw
	ClientBy   string         `json:"client_by"`   // "given", "capture" or "guessed"
	Packets    int            `json:"packets"`     // both ways
	Bytes      int64          `json:"bytes"`       // of IP packets, both ways
	Share      float64        `json:"share"`       // of the bytes that all observers saw, 0 to 1
	Up         Traffic        `json:"up"`          // client to server
	Down       Traffic        `json:"down"`        // server to client
	Visits     int            `json:"visits"`      // runs of consecutive packets, both ways
	LongestRun int            `json:"longest_run"` // packets
	MedianRun  int            `json:"median_run"`  // packets
	First      float64        `json:"first"`       // seconds from the session's start to the first packet seen here
	Last       float64        `json:"last"`        // to the last one
	Watched    float64        `json:"watched"`     // seconds from first to last
	Slots      float64        `json:"slots"`       // total seconds within runs
	Protocols  []string       `json:"protocols"`   // most packets first
	Servers    []string       `json:"servers"`     // remote addresses, most packets first
	Names      []inspect.Name `json:"names"`
	Content    Content        `json:"content"`
	Stopped    string         `json:"stopped,omitempty"` // why the capture ends early
	Missed     uint64         `json:"missed"`            // packets that the capture says it dropped
	Foreign    uint64         `json:"foreign"`           // packets of other hosts, excluded
	NotIP      uint64         `json:"not_ip"`            // non-IP packets, excluded
	Joined     int            `json:"joined"`            // packets above 1,500 bytes: joined by offloading

	payload int64 // bytes in TCP and UDP
}

// Content is what an observer could read.
type Content struct {
	Bytes    int64    `json:"bytes"`    // payload in clear (HTTP, DNS)
	Share    float64  `json:"share"`    // of the payload of the whole session, 0 to 1
	Requests []string `json:"requests"` // HTTP requests, as "GET host/path"
}

const ethernetMTU = 1500

// Report computes the exposure of each observer from the captures alone.
func (s *Session) Report() Report {
	r := Report{Label: s.Label, Claim: claim, Start: s.Start().UTC(), Seconds: s.Duration().Seconds()}
	events := s.merged()
	var payload int64
	for i := range s.Observers {
		o := &s.Observers[i]
		e := o.exposure(r.Start)
		r.Packets, r.Bytes = r.Packets+e.Packets, r.Bytes+e.Bytes
		r.Up.add(e.Up)
		r.Down.add(e.Down)
		payload += e.payload
		r.Observers = append(r.Observers, e)
	}
	all := runs(events, func(event) bool { return true })
	up := runs(events, func(e event) bool { return e.Out })
	down := runs(events, func(e event) bool { return !e.Out })
	for i := range r.Observers {
		e := &r.Observers[i]
		e.Share = share(e.Bytes, r.Bytes)
		e.Up.Share, e.Down.Share = share(e.Up.Bytes, r.Up.Bytes), share(e.Down.Bytes, r.Down.Bytes)
		e.Content.Share = share(e.Content.Bytes, payload)
		e.Up.LongestRun, e.Down.LongestRun = longest(up, i), longest(down, i)
		e.runs(all, i)
	}
	r.Up.Share, r.Down.Share = share(r.Up.Bytes, r.Up.Bytes), share(r.Down.Bytes, r.Down.Bytes)
	r.Up.LongestRun, r.Down.LongestRun = longest(up, anyone), longest(down, anyone)
	r.Limits = s.limits(r)
	return r
}

func (t *Traffic) add(o Traffic) { t.Packets, t.Bytes = t.Packets+o.Packets, t.Bytes+o.Bytes }

func share(part, whole int64) float64 {
	if whole == 0 {
		return 0
	}
	return float64(part) / float64(whole)
}

func (o *Observer) exposure(start time.Time) Exposure {
	e := Exposure{Observer: o.Name, Files: o.Files, ClientBy: o.How, Stopped: o.Stopped,
		Missed: o.Missed, Foreign: o.Foreign, NotIP: o.NotIP}
	for _, a := range o.Clients {
		e.Client = append(e.Client, a.String())
	}
	packets := make([]int, len(o.Flows))
	for _, p := range o.Packets {
		t := &e.Down
		if p.Out {
			t = &e.Up
		}
		t.add(Traffic{Packets: 1, Bytes: int64(p.Size)})
		packets[p.Flow]++
		if p.Size > ethernetMTU {
			e.Joined++
		}
	}
	e.Packets, e.Bytes = e.Up.Packets+e.Down.Packets, e.Up.Bytes+e.Down.Bytes
	if n := len(o.Packets); n > 0 {
		e.First, e.Last = o.Packets[0].Time.Sub(start).Seconds(), o.Packets[n-1].Time.Sub(start).Seconds()
		e.Watched = o.Packets[n-1].Time.Sub(o.Packets[0].Time).Seconds()
	}
	e.read(o.Flows, packets)
	return e
}

// read collects what the observer could read in its conversations.
func (e *Exposure) read(flows []Flow, packets []int) {
	protocols, servers := map[string]int{}, map[netip.Addr]int{}
	e.Names, e.Content.Requests = []inspect.Name{}, []string{}
	for i, f := range flows {
		if packets[i] == 0 {
			continue // of another host
		}
		e.payload += f.Payload
		protocols[cmp.Or(f.Protocol, f.Transport)] += packets[i]
		servers[f.Server.Addr()] += packets[i]
		for _, n := range f.Names {
			if !slices.Contains(e.Names, n) {
				e.Names = append(e.Names, n)
			}
		}
		if f.Readable {
			e.Content.Bytes += f.Payload
		}
		e.Content.Requests = append(e.Content.Requests, f.Requests...)
	}
	e.Protocols = byCount(protocols, cmp.Compare[string])
	for _, a := range byCount(servers, netip.Addr.Compare) {
		e.Servers = append(e.Servers, a.String())
	}
}

// byCount lists the keys of a count, the highest first.
func byCount[K comparable](count map[K]int, order func(a, b K) int) []K {
	return slices.SortedFunc(maps.Keys(count), func(a, b K) int {
		return cmp.Or(cmp.Compare(count[b], count[a]), order(a, b))
	})
}

// run is a sequence of packets that one observer saw without another's in between.
type run struct {
	observer, packets int
	first, last       time.Time
}

// runs splits the events that count into runs.
func runs(events []event, counts func(event) bool) []run {
	var all []run
	for _, e := range events {
		if !counts(e) {
			continue
		}
		if n := len(all); n > 0 && all[n-1].observer == e.observer {
			all[n-1].packets++
			all[n-1].last = e.Time
			continue
		}
		all = append(all, run{observer: e.observer, packets: 1, first: e.Time, last: e.Time})
	}
	return all
}

const anyone = -1

// longest returns the packets of the longest run of an observer, or of any observer.
func longest(all []run, observer int) int {
	most := 0
	for _, r := range all {
		if observer == anyone || r.observer == observer {
			most = max(most, r.packets)
		}
	}
	return most
}

func (e *Exposure) runs(all []run, observer int) {
	var lengths []int
	for _, r := range all {
		if r.observer == observer {
			lengths = append(lengths, r.packets)
			e.Slots += r.last.Sub(r.first).Seconds()
		}
	}
	if len(lengths) == 0 {
		return
	}
	slices.Sort(lengths)
	e.Visits, e.LongestRun, e.MedianRun = len(lengths), lengths[len(lengths)-1], lengths[(len(lengths)-1)/2]
}
