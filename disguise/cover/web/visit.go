package web

import (
	"net/http"
	"slices"
	"sync"
	"time"

	"heddle/internal/draw"
)

// visit is what the connections of a client share: the page that is open, what of it is yet to be fetched, the cookies, and what is known of
// the bridge's end of the link.
type visit struct {
	*catalogue

	mu      sync.Mutex
	page    *page // nil before the first one
	opening bool  // its document is on the way
	opened  time.Time
	rest    []load // loads of the page that were not fetched yet
	cookies []*http.Cookie
	tabs    int
	flights int // requests on the way
	loading int // those of them that are loads of the page, inside TLS
	used    int // bytes of use that the page carried, inside TLS
	held    int // bytes that the bridge held for the client when it last said so
	asked   int // bytes that the answers on the way carry
	backoff time.Duration
	poll    time.Time     // when to ask the bridge whether it holds something
	change  chan struct{} // closed at each change that others wait for
}

// After use, a client asks the bridge at growing intervals whether it holds something.
const (
	pollFirst   = 20 * time.Millisecond
	pollLongest = time.Minute
	// leastBulk is from how many bytes on a client goes through pages rather than repeating what scripts fetch.
	leastBulk = 16 << 10
)

func newVisit(c *catalogue) *visit {
	return &visit{catalogue: c, backoff: pollFirst, change: make(chan struct{})}
}

func (v *visit) changed() {
	close(v.change)
	v.change = make(chan struct{})
}

// enter and leave count connections. The last connection that ends clears the state of the link.
func (v *visit) enter() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.tabs++
	v.backoff, v.poll = pollFirst, time.Time{}
}

func (v *visit) leave() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.tabs--; v.tabs == 0 {
		v.held, v.asked, v.rest = 0, 0, nil
	}
	v.changed()
}

// sender is what a connection has to send.
type sender interface {
	waiting() int                  // bytes
	draw(it *item) ([]byte, error) // returns the next bytes, for a request
}

// next returns what a connection fetches next, and what the request hides. Otherwise it returns what to wait for: a change, or the time.
// All connections ask one after the other, so that no two fetch something for the same bytes.
func (v *visit) next(s sender, now time.Time) (out *flight, hidden []byte, wait *pause, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	var it *item
	up, want := s.waiting(), v.held-v.asked
	due := v.flights == 0 && !now.Before(v.poll)
	next, at := v.scheduled(want)
	loads := next >= 0 && !now.Before(at)
	if v.opening || !loads && up == 0 && want <= 0 && !due {
		return nil, nil, v.pause(next >= 0, at), nil
	}
	switch {
	case loads:
		it = v.items[v.rest[next].number]
		v.rest = slices.Delete(v.rest, next, next+1)
		v.loading++
	default:
		if it = v.choose(up, want, next >= 0); it == nil {
			return nil, nil, v.pause(next >= 0, at), nil
		}
		if up == 0 && want <= 0 {
			v.backoff = min(v.backoff*2, pollLongest)
		}
	}
	v.flights++
	v.asked += it.carries()
	hidden, err = s.draw(it)
	return &flight{item: it, load: loads}, hidden, nil, err
}

// pause is for a connection that has nothing to fetch, or only at a time. v.mu is held.
func (v *visit) pause(timed bool, at time.Time) *pause {
	p := &pause{v.change, v.poll, v.flights > 0, v.opening}
	if timed && !v.opening && (p.untimed || at.Before(p.until)) {
		p.until, p.untimed = at, false
	}
	return p
}

// scheduled returns which load of the page comes next inside TLS, where pages are loaded whole and at their times, and when it is due. It
// returns -1 if there is none. Media are loaded only for as long as much waits: a visitor may stop them at any time. v.mu is held.
func (v *visit) scheduled(want int) (next int, at time.Time) {
	if !v.sealed {
		return -1, at
	}
	next = slices.IndexFunc(v.rest, func(l load) bool { return want >= leastBulk || !v.items[l.number].media() })
	if next >= 0 {
		at = v.opened.Add(v.rest[next].at)
	}
	return next, at
}

// pause is what a connection waits for that has nothing to fetch.
type pause struct {
	change  <-chan struct{}
	until   time.Time
	untimed bool // not until a time: an answer is on the way
	deaf    bool // what waits to be sent has to wait for the change too
}

// choose returns what to fetch. It returns nil if only loads help, of which one is scheduled. v.mu is held.
func (v *visit) choose(up, want int, scheduled bool) *item {
	switch {
	case v.page == nil:
		return v.open(want)
	case v.sealed && want >= leastBulk && !scheduled && v.loading == 0: // all of the page is there
		return v.open(want)
	case v.sealed && want >= leastBulk && up == 0:
		return nil
	case !v.sealed && want >= leastBulk:
		if len(v.rest) == 0 {
			return v.open(want)
		}
		it := v.items[v.rest[0].number]
		if up <= it.up() || v.flights > 0 && draw.Below(2) == 0 { // or else what goes up would wait for long
			v.rest = v.rest[1:]
			return it
		}
	}
	return v.live(up, want)
}

// open goes to the page that carries so many bytes at the least cost, and fetches its document. v.mu is held.
func (v *visit) open(want int) *item {
	if v.page != nil && v.used >= v.room(v.page)/2 {
		want = max(want, 4*v.used) // the last page was too small
	}
	v.used = 0
	best := &v.pages[0]
	for i := range v.pages {
		if p := &v.pages[i]; v.price(p, want) < v.price(best, want) {
			best = p
		}
	}
	v.page, v.rest, v.opening, v.opened = best, slices.Clone(best.loads), true, time.Now()
	return v.items[best.document]
}

// price is the cost of a byte, if so many are to come by a page. A visitor may leave it before everything was loaded.
func (v *visit) price(p *page, want int) float64 {
	want = max(want, leastDown)
	document := v.items[p.document]
	cost, carried := document.cost, document.carries()
	for _, l := range p.loads {
		it := v.items[l.number]
		if carried >= want && (!v.sealed || it.media()) {
			continue
		}
		cost, carried = cost+it.cost, carried+it.carries()
	}
	if v.sealed {
		cost += visitCost
	}
	return float64(cost) / float64(max(1, min(carried, want)))
}

// visitCost is what a visit costs beside its exchanges inside TLS, in bytes: a page waits for the end of the last one, and for its document.
const visitCost = 256 << 10

// room is how many bytes of blocks a page carries.
func (v *visit) room(p *page) int {
	n := v.items[p.document].carries()
	for _, l := range p.loads {
		n += v.items[l.number].carries()
	}
	return n
}

// live returns what a script of the page fetches again, with the least cost for so many bytes. v.mu is held.
func (v *visit) live(up, want int) (best *item) {
	least := 0
	for _, number := range v.page.live {
		it := v.items[number]
		need, room := up, it.up()
		if up == 0 {
			need, room = max(want, 1), it.carries()
		}
		if room == 0 {
			continue
		}
		if cost := (need + room - 1) / room * it.cost; best == nil || cost < least {
			best, least = it, cost
		}
	}
	return best
}

// done notes the end of an exchange.
func (v *visit) done(it *flight) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.flights--
	if it.load {
		v.loading--
	}
	v.asked -= it.carries() - it.arrived
	if v.page != nil && v.items[v.page.document] == it.item {
		v.opening = false
	}
	useful := it.useful
	if it.said != nil {
		v.held = int(it.said.held)
		useful = useful || it.said.useful
	}
	if useful {
		v.backoff = pollFirst
	}
	// No fixed period.
	v.poll = time.Now().Add(v.backoff/2 + time.Duration(draw.Below(int(v.backoff))))
	v.changed()
}

// got notes bytes of an answer that arrived inside TLS, and what the bridge said then.
func (v *visit) got(it *flight, bytes int, said head) {
	v.mu.Lock()
	defer v.mu.Unlock()
	bytes = min(bytes, it.carries()-it.arrived)
	it.arrived += bytes
	v.asked -= bytes
	v.held = int(said.held)
	if said.useful {
		it.useful = true
		v.used += bytes
	}
	v.changed()
}

// keep keeps the cookies that an answer set, and about returns those of a request.
func (v *visit) keep(set []*http.Cookie) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, c := range set {
		if len(c.Name)+len(c.Value) > mostCookie || c.Name == hiddenCookie || c.Name == visitCookie {
			continue
		}
		i := slices.IndexFunc(v.cookies, func(old *http.Cookie) bool { return old.Name == c.Name })
		switch {
		case i >= 0:
			v.cookies[i] = c
		case len(v.cookies) < mostCookies:
			v.cookies = append(v.cookies, c)
		}
	}
}

// Limits of the cookies that a client keeps of a stranger's site.
const (
	mostCookies = 64
	mostCookie  = 4096 // bytes
)

// about returns the cookies, and the document of the page that is open.
func (v *visit) about() (cookies []string, document string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, c := range v.cookies {
		cookies = append(cookies, c.Name+"="+c.Value)
	}
	if v.page != nil {
		document = v.items[v.page.document].URL
	}
	return cookies, document
}
