package web

import (
	"net/http"
	"slices"
	"sync"
	"time"

	"heddle/internal/draw"
)

// visit is what the connections of a client share: the pages that are open, the cookies, and what is known of the bridge's end of the link.
type visit struct {
	*catalogue

	mu      sync.Mutex
	views   []*view
	cookies []*http.Cookie
	flights int // requests on the way
	held    int // bytes that the bridge held for the client when it last said so
	asked   int // bytes that answers carry which the bridge has yet to fill
	backoff time.Duration
	poll    time.Time     // when to ask the bridge whether it holds something
	change  chan struct{} // closed at each change that others wait for
}

// view is the page that a connection shows, and what of it is yet to be fetched. The mutex of its visit guards it.
type view struct {
	page    *page // nil before the first one
	first   bool  // it is the connection's first one
	opening bool  // its document is on the way
	opened  time.Time
	rest    []load // loads of the page that were not fetched yet
	loading int    // requests on the way that are loads of the page
	used    int    // bytes of use that the page carried, inside TLS
}

// After use, a client asks the bridge at growing intervals whether it holds something.
const (
	pollFirst   = 20 * time.Millisecond
	pollLongest = time.Minute
	// pollRoom is for how many bytes a client asks: a cell of Tor in TLS.
	pollRoom = 600
	// mostPolled is from how many requests on the way on a client asks for nothing more: their answers tell.
	mostPolled = 2
	// leastBulk is from how many bytes on a client goes through pages rather than repeating what scripts fetch.
	leastBulk = 16 << 10
	// leastPromise is how much a connection fetches by a page that it opens, in bytes.
	leastPromise = 64 << 10
)

func newVisit(c *catalogue) *visit {
	return &visit{catalogue: c, backoff: pollFirst, change: make(chan struct{})}
}

func (v *visit) changed() {
	close(v.change)
	v.change = make(chan struct{})
}

// enter and leave count connections. The last connection that ends clears the state of the link.
func (v *visit) enter(p *view) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.views = append(v.views, p)
	v.backoff, v.poll = pollFirst, time.Time{}
}

func (v *visit) leave(p *view) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.views = slices.DeleteFunc(v.views, func(o *view) bool { return o == p }); len(v.views) == 0 {
		v.held, v.asked = 0, 0
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
func (v *visit) next(p *view, s sender, now time.Time) (out *flight, hidden []byte, wait *pause, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	var it *item
	up, want := s.waiting(), v.held-v.asked-v.promised(p)
	polls := v.polls(p) && v.flights < mostPolled
	due := polls && !now.Before(v.poll)
	next, at := v.scheduled(p, want)
	loads := next >= 0 && !now.Before(at)
	if p.opening || !loads && up == 0 && want <= 0 && !due {
		return nil, nil, v.pause(p, polls, next >= 0, at), nil
	}
	switch {
	case loads:
		it = v.items[p.rest[next].number]
		p.rest = slices.Delete(p.rest, next, next+1)
		p.loading++
	default:
		polling := up == 0 && want <= 0
		if due {
			want = max(want, pollRoom)
		}
		if it = v.choose(p, up, want, next >= 0); it == nil {
			return nil, nil, v.pause(p, false, next >= 0, at), nil
		}
		if polling {
			v.backoff = min(v.backoff*2, pollLongest)
			v.pollLater(now)
		}
	}
	v.flights++
	v.asked += it.carries()
	hidden, err = s.draw(it)
	return &flight{item: it, load: loads}, hidden, nil, err
}

// polls reports whether a connection asks the bridge whether it holds something. One without a page would open one for that. v.mu is held.
func (v *visit) polls(p *view) bool {
	return p.page != nil || !slices.ContainsFunc(v.views, func(other *view) bool { return other.page != nil })
}

// promised returns the bytes of what waits that other connections will fetch by the pages that they open. v.mu is held.
func (v *visit) promised(but *view) (bytes int) {
	for _, p := range v.views {
		if p != but && p.opening && !p.first {
			room := v.room(p.page) - v.items[p.page.document].carries() // that is asked for
			bytes += min(room, max(v.held/len(v.views), leastPromise))
		}
	}
	return bytes
}

// pause is for a connection that has nothing to fetch, or only at a time. polls tells that it asks the bridge when it is time for that.
// v.mu is held.
func (v *visit) pause(p *view, polls, timed bool, at time.Time) *pause {
	out := &pause{v.change, v.poll, !polls, p.opening}
	if timed && !p.opening && (out.untimed || at.Before(out.until)) {
		out.until, out.untimed = at, false
	}
	return out
}

// scheduled returns which load of the page comes next, and when it is due, or -1 if any request may come next. Inside TLS all pages are
// loaded whole, and at their times. Otherwise only the first page of a connection is: what connections begin with is what
// filters look at. Media are loaded only for as long as much waits: a visitor may stop them at any time. v.mu is held.
func (v *visit) scheduled(p *view, want int) (next int, at time.Time) {
	if !v.sealed && !p.first {
		return -1, at
	}
	next = slices.IndexFunc(p.rest, func(l load) bool { return want >= leastBulk || !v.items[l.number].media() })
	if next >= 0 && v.sealed {
		at = p.opened.Add(p.rest[next].at)
	}
	return next, at
}

// pause is what a connection waits for that has nothing to fetch.
type pause struct {
	change  <-chan struct{}
	until   time.Time
	untimed bool // not until a time
	deaf    bool // what waits to be sent has to wait for the change too
}

// choose returns what to fetch. It returns nil if only loads help, of which one is scheduled. v.mu is held.
func (v *visit) choose(p *view, up, want int, scheduled bool) *item {
	switch {
	case p.page == nil:
		return v.open(p, want)
	case v.sealed && want >= leastBulk && !scheduled && p.loading == 0: // all of the page is there
		return v.open(p, want)
	case v.sealed && want >= leastBulk && up == 0:
		return nil
	case !v.sealed && want >= leastBulk:
		i := v.fitting(p, want/len(v.views))
		if i < 0 {
			return v.open(p, want)
		}
		it := v.items[p.rest[i].number]
		if up <= it.up() || v.flights > 0 && draw.Below(2) == 0 { // or else what goes up would wait for long
			p.rest = slices.Delete(p.rest, i, i+1)
			return it
		}
	}
	if want >= leastBulk { // which pages bring
		want = 0
	}
	return v.live(p.page, up, want)
}

// fitting returns which load of the page carries so many bytes with the least room to spare, or as many as any does. It returns -1 if no
// load is worth a round trip. v.mu is held.
func (v *visit) fitting(p *view, want int) (best int) {
	best = -1
	for i, l := range p.rest {
		n := v.items[l.number].carries()
		if !slices.Contains(p.page.bulk, l) {
			continue
		}
		if best < 0 {
			best = i
			continue
		}
		if old := v.items[p.rest[best].number].carries(); old < want && n > old || n >= want && n < old {
			best = i
		}
	}
	return best
}

// open goes to the page that carries so many bytes at the least cost, and fetches its document. A page that other connections show costs
// more: nobody opens the same one several times. v.mu is held.
func (v *visit) open(p *view, want int) *item {
	if p.page != nil && p.used >= v.room(p.page)/2 {
		want = max(want, 4*p.used) // the last page was too small
	}
	best, least := (*page)(nil), 0.0
	whole := v.sealed || p.page == nil
	if whole && !v.sealed { // large pages come after it
		want = min(want, leastBulk)
	}
	for i := range v.pages {
		one := &v.pages[i]
		price := v.price(one, want, whole)
		for _, other := range v.views {
			if other != p && other.page == one {
				price *= againCost
			}
		}
		if best == nil || price < least {
			best, least = one, price
		}
	}
	*p = view{page: best, first: p.page == nil, opening: true, opened: time.Now(), rest: slices.Clone(best.loads), loading: p.loading}
	return v.items[best.document]
}

// againCost is how much more a page costs for each connection that shows it.
const againCost = 1.5

// price is the cost of a byte, if so many are to come by a page. A visitor may leave it before everything was loaded, unless the page is
// loaded whole.
func (v *visit) price(p *page, want int, whole bool) float64 {
	want = max(want, leastDown)
	document := v.items[p.document]
	cost, carried := document.cost, document.carries()
	loads := p.bulk
	if whole {
		loads = p.loads
	}
	for _, l := range loads {
		it := v.items[l.number]
		if carried >= want && (!whole || it.media()) {
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

// live returns what a script of a page fetches again, with the least cost for so many bytes both ways. v.mu is held.
func (v *visit) live(p *page, up, want int) (best *item) {
	least := 0
	for _, number := range p.live {
		it := v.items[number]
		if up > 0 && it.up() == 0 || up == 0 && it.carries() == 0 {
			continue
		}
		rounds := max(1, exchanges(up, it.up()), exchanges(want, it.carries()))
		if cost := rounds * it.cost; best == nil || cost < least {
			best, least = it, cost
		}
	}
	return best
}

// exchanges is how many exchanges so many bytes need.
func exchanges(bytes, room int) int { return (max(bytes, 0) + max(room, 1) - 1) / max(room, 1) }

// done notes the end of an exchange.
func (v *visit) done(p *view, it *flight) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.flights--
	if it.load {
		p.loading--
	}
	v.asked -= it.carries() - it.arrived
	if p.page != nil && v.items[p.page.document] == it.item {
		p.opening = false
	}
	if it.useful || it.said != nil && it.said.useful {
		v.backoff = pollFirst
	}
	v.pollLater(time.Now())
	v.changed()
}

// pollLater sets when the client asks next, at no fixed period. v.mu is held.
func (v *visit) pollLater(now time.Time) {
	v.poll = now.Add(v.backoff/2 + time.Duration(draw.Below(int(v.backoff))))
}

// heard notes what the bridge said when it filled an answer.
func (v *visit) heard(it *flight, said head) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.asked -= it.carries() - it.arrived
	it.arrived = it.carries()
	v.held = int(said.held)
	v.changed()
}

// got notes bytes of an answer that arrived inside TLS, and what the bridge said then.
func (v *visit) got(p *view, it *flight, bytes int, said head) {
	v.mu.Lock()
	defer v.mu.Unlock()
	bytes = min(bytes, it.carries()-it.arrived)
	it.arrived += bytes
	v.asked -= bytes
	v.held = int(said.held)
	if said.useful {
		it.useful = true
		p.used += bytes
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

// about returns the cookies, and the document of the page that a connection shows.
func (v *visit) about(p *view) (cookies []string, document string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, c := range v.cookies {
		cookies = append(cookies, c.Name+"="+c.Value)
	}
	if p.page != nil {
		document = v.items[p.page.document].URL
	}
	return cookies, document
}
