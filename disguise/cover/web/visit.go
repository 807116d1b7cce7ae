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
	demand
	backoff time.Duration
	poll    time.Time     // when to ask the bridge whether it holds something
	change  chan struct{} // closed at each change that others wait for
}

// view is what a connection shows. Over plain HTTP all connections by one path share it, as those of a browser do: no network sees what
// a page loads without the page. The mutex of its visit guards it.
type view struct {
	path    string
	page    *page // nil before the first one
	first   bool  // it is the first one
	coming  *page // whose document is on the way; nil if none is
	opened  time.Time
	rest    []part // what was not fetched yet, of the page and of the one before it
	turn    int    // how many pages it showed
	loading int    // requests on the way that are loads of the page
	used    int    // bytes of use that the page carried, inside TLS
}

// part is a load of a page.
type part struct {
	load
	of   *page
	turn int // of the view
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
	// answersAtOnce is over how many answers what waits is spread: one connection is slow to begin, and many leave the end of each answer unused.
	answersAtOnce = 3
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
func (v *visit) enter(path string) *view {
	v.mu.Lock()
	defer v.mu.Unlock()
	p := &view{path: path}
	if i := slices.IndexFunc(v.views, func(o *view) bool { return o.path == path }); i >= 0 && !v.sealed {
		p = v.views[i]
	}
	v.views = append(v.views, p)
	v.backoff, v.poll = pollFirst, time.Time{}
	return p
}

func (v *visit) leave(p *view) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if i := slices.Index(v.views, p); i >= 0 {
		v.views = slices.Delete(v.views, i, i+1)
	}
	if len(v.views) == 0 {
		v.held, v.flow, v.run = 0, 0, 0
	}
	v.changed()
}

// sender is a connection, and what it has to send.
type sender interface {
	waiting() int                  // bytes
	draw(it *item) ([]byte, error) // returns the next bytes, for a request
	met() (begun, known bool)      // whether it sent a request, and whether the bridge knows whose it is
}

// next returns what a connection fetches next, and what the request hides. Otherwise it returns what to wait for: a change, or the time.
// All connections ask one after the other, so that no two fetch something for the same bytes.
func (v *visit) next(p *view, s sender, now time.Time) (out *flight, hidden []byte, wait *pause, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	begun, known := s.met()
	up, want := s.waiting(), 0
	switch {
	case v.sealed:
		want = v.held - v.promised(p) - v.asked()
	case known: // what is asked for as a stranger is lost
		want = v.wanted(now) - v.promised(p) - v.expected(now)
	}
	polls := v.polls(p) && len(v.going) < mostPolled
	due := polls && !now.Before(v.poll)
	next, at := v.scheduled(p, want)
	loads := next >= 0 && !now.Before(at)
	if v.shut(p) || !loads && up == 0 && want <= 0 && !due {
		return nil, nil, v.pause(p, polls, next >= 0, at), nil
	}
	out = &flight{load: loads}
	switch {
	case loads:
		v.take(p, next, out)
		p.loading++
	case !begun && p.page != nil && !v.sealed:
		v.meet(p, out)
	default:
		polling := up == 0 && want <= 0
		if due {
			want = max(want, pollRoom)
		}
		if v.choose(p, out, up, want, next >= 0); out.item == nil {
			return nil, nil, v.pause(p, false, next >= 0, at), nil
		}
		if polling {
			v.backoff = min(v.backoff*2, pollLongest)
			v.pollLater(now)
		}
	}
	v.leaves(out, known || v.sealed, now)
	hidden, err = s.draw(out.item)
	return out, hidden, nil, err
}

// shut reports whether nothing is fetched before a document is there. Over plain HTTP the last page goes on until then. v.mu is held.
func (v *visit) shut(p *view) bool { return p.coming != nil && (v.sealed || p.page == nil) }

// take makes a flight of a load of the view. v.mu is held.
func (v *visit) take(p *view, i int, out *flight) {
	out.item, out.from = v.items[p.rest[i].number], p.rest[i].of
	p.rest = slices.Delete(p.rest, i, i+1)
}

// meet begins a connection beside others. Filters look at the first request of a connection, and a browser's is for a part of the page. The bridge
// takes the request for a stranger's, so meet chooses the smallest part. v.mu is held.
func (v *visit) meet(p *view, out *flight) {
	best, least := -1, 0
	for i, l := range p.rest {
		if it := v.items[l.number]; it.Method == http.MethodGet && (best < 0 || it.cost < least) {
			best, least = i, it.cost
		}
	}
	if best >= 0 {
		v.take(p, best, out)
		return
	}
	out.from = p.page
	for _, number := range p.page.live {
		if it := v.items[number]; it.Method == http.MethodGet && (out.item == nil || it.cost < out.cost) {
			out.item = it
		}
	}
	if out.item == nil {
		out.item = v.items[p.page.live[0]]
	}
}

// polls reports whether a connection asks the bridge whether it holds something. One without a page would open one for that. v.mu is held.
func (v *visit) polls(p *view) bool {
	return p.page != nil || !slices.ContainsFunc(v.views, func(other *view) bool { return other.page != nil || other.coming != nil })
}

// promised returns the bytes of what waits that other connections will fetch by the pages that they open. v.mu is held.
func (v *visit) promised(but *view) (bytes int) {
	for _, p := range v.views {
		if p != but && p.coming != nil && !p.first {
			room := v.room(p.coming) - v.items[p.coming.document].carries() // that is asked for
			bytes += min(room, max(v.held/len(v.views), leastPromise))
		}
	}
	return bytes
}

// pause is for a connection that has nothing to fetch, or only at a time. polls tells that it asks the bridge when it is time for that.
// v.mu is held.
func (v *visit) pause(p *view, polls, timed bool, at time.Time) *pause {
	out := &pause{v.change, v.poll, !polls, v.shut(p)}
	if timed && !v.shut(p) && (out.untimed || at.Before(out.until)) {
		out.until, out.untimed = at, false
	}
	return out
}

// scheduled returns which load of the page comes next, and when it is due, or -1 if any request may come next. Inside TLS all pages are
// loaded whole, and at their times. Otherwise only the first page is: what connections begin with is what
// filters look at. Media are loaded only for as long as much waits: a visitor may stop them at any time. v.mu is held.
func (v *visit) scheduled(p *view, want int) (next int, at time.Time) {
	if !v.sealed && !p.first {
		return -1, at
	}
	next = slices.IndexFunc(p.rest, func(l part) bool { return want >= leastBulk || !v.items[l.number].media() })
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

// choose makes a flight of what to fetch. It leaves the flight without an item if only loads help, of which one is scheduled. v.mu is held.
func (v *visit) choose(p *view, out *flight, up, want int, scheduled bool) {
	switch {
	case p.page == nil:
		v.open(p, out, want)
		return
	case v.sealed && want >= leastBulk && !scheduled && p.loading == 0: // all of the page is there
		v.open(p, out, want)
		return
	case v.sealed && want >= leastBulk && up == 0:
		return
	case !v.sealed && want >= leastBulk:
		i, worn := v.fitting(p, want/answersAtOnce)
		if p.coming == nil && (i < 0 || worn || v.short(p)) {
			v.open(p, out, want)
			return
		}
		if i >= 0 && (up <= v.items[p.rest[i].number].up() || len(v.going) > 0 && draw.Below(2) == 0) { // or else what goes up would wait for long
			v.take(p, i, out)
			return
		}
		if up == 0 {
			return
		}
	}
	if want >= leastBulk { // which pages bring
		want = 0
	}
	out.from = p.page
	out.item = v.live(p.page, up, want)
}

// open makes a flight of the document of the page that carries so many bytes at the least cost. A page that other views show
// costs more: nobody opens the same one several times. v.mu is held.
func (v *visit) open(p *view, out *flight, want int) {
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
	p.first, p.coming, p.opened, p.used = p.page == nil, best, time.Now(), 0
	if v.sealed {
		p.rest = nil
	}
	out.item, out.from, out.opens = v.items[best.document], best, true
}

// againCost is how much more a page costs for each other view that shows it.
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

// show shows a page. The client may still fetch pictures of the page before it.
func (p *view) show(one *page) {
	p.rest = slices.DeleteFunc(p.rest, func(l part) bool { return l.turn < p.turn || !slices.Contains(l.of.bulk, l.load) })
	p.page = one
	p.turn++
	for _, l := range one.loads {
		p.rest = append(p.rest, part{l, one, p.turn})
	}
}

// done notes the end of an exchange, which failed or not.
func (v *visit) done(p *view, it *flight, failed bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.ends(it)
	if it.load {
		p.loading--
	}
	if it.opens {
		if p.coming = nil; !failed {
			p.show(it.from)
		}
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
func (v *visit) heard(said head) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.held = int(said.held)
	v.changed()
}

// got notes bytes of an answer that arrived inside TLS, and what the bridge said then.
func (v *visit) got(p *view, it *flight, bytes int, said head) {
	v.mu.Lock()
	defer v.mu.Unlock()
	bytes = min(bytes, it.carries()-it.arrived)
	it.arrived += bytes
	v.held = int(said.held)
	if said.useful {
		it.useful = true
		p.used += bytes
	}
	v.changed()
}

// keep keeps the cookies that an answer set, and kept returns those of a request.
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

func (v *visit) kept() (cookies []string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, c := range v.cookies {
		cookies = append(cookies, c.Name+"="+c.Value)
	}
	return cookies
}
