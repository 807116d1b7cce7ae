package web

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"heddle/disguise/carrier"
	"heddle/disguise/site"
	"heddle/path"
)

// leastDown is the least payload of an answer that carries blocks: a head, and a block of some use.
const leastDown = headSize + 64

// item is an object of the site, and what it hides.
type item struct {
	*site.Object
	number    int
	url, body int // bytes that its request hides
	down      int // bytes that its answer hides, of whoever asks
	posted    carrier.Carrier
	answer    carrier.Carrier
	sealed    bool // inside TLS: blocks take the place of whole bodies for clients
	live      bool // a script fetches it, and may do so again
	cost      int  // bytes of one exchange on the wire, about
	grown     int  // bytes of the answer with all that it hides, about
	packed    func() []byte
	wire      func() int   // the size of the body on the wire, inside TLS, about
	sizes     func() []int // that visitors get of it
}

// up is how many bytes the request hides at most.
func (it *item) up() int {
	if it.sealed {
		return it.body + cookieRoom
	}
	return it.url + it.body
}

// carries is how many bytes of blocks the answer carries.
func (it *item) carries() int {
	if it.sealed {
		return it.parts()
	}
	if it.down < leastDown {
		return 0
	}
	return it.down - headSize
}

// page is a page with what a browser fetches at each visit: what it may not keep.
type page struct {
	document int
	loads    []load
	bulk     []load // those that are worth a round trip where much waits, the largest first
	live     []int  // loads of scripts, each once
	links    []int  // documents
}

// load is one load of a page.
type load struct {
	number int
	at     time.Duration // since the browser asked for the document
}

// catalogue finds the objects of a site by requests.
type catalogue struct {
	site   *site.Site
	sealed bool
	items  []*item
	exact  map[string]*item   // by method and target
	hiding map[string][]*item // with hidden bytes, by method and length of the target
	plain  map[string]*item   // by path
	lost   *item              // what the site answers to a wrong target; may be nil
	pages  []page
	host   string
}

// About what an exchange costs beside the target and the bodies, in bytes: headers, and the round trip, during which the connection
// carries nothing else. Usual links carry less up than down.
const (
	headersCost = 700
	roundCost   = 1500
	upCost      = 4 // for each byte
)

func newCatalogue(s *site.Site, sealed bool) (*catalogue, error) {
	c := fill(s, sealed)
	switch {
	case len(c.pages) > 0:
		return c, nil
	case sealed:
		return nil, &path.Error{What: "cover " + NameTLS, Why: fmt.Sprintf("the site hides nothing: no page has an object of %d bytes", leastSealed), Hint: "record a larger site"}
	}
	return nil, &path.Error{What: "cover " + Name, Why: "the site hides nothing: no page has scripts that send random tokens, and get some",
		Hint: "record a site whose scripts send tokens in targets, or POST JSON or forms, and get JSON that differs at each visit; heddle disguise site check shows what is there"}
}

// fill makes the catalogue of a site. It has no pages if the site hides nothing.
func fill(s *site.Site, sealed bool) *catalogue {
	c := &catalogue{site: s, sealed: sealed, exact: map[string]*item{}, hiding: map[string][]*item{}, plain: map[string]*item{}}
	_, c.host, _ = strings.Cut(s.Origin, "://")
	pinned, given := s.Pinned(), s.Given()
	same := make([]*item, len(s.Objects)) // the first object with the same grammar
	for i := range s.Objects {
		it := newItem(i, &s.Objects[i], pinned[i], given)
		if sealed {
			it.seal()
		}
		c.items = append(c.items, it)
		if same[i] = c.add(it); it.Status == http.StatusNotFound && c.lost == nil {
			c.lost = it
		}
	}
	for _, p := range s.Pages {
		if p, usable := c.page(p, same); usable {
			c.pages = append(c.pages, p)
		}
	}
	return c
}

func newItem(number int, o *site.Object, pinned bool, given site.Tokens) *item {
	it := &item{Object: o, number: number, cost: headersCost + roundCost + upCost*(len(o.URL)+len(o.Posted)) + len(o.Body)}
	if !given.In(o.URL) {
		it.url = carrier.Target.Capacity([]byte(o.URL))
	}
	if it.posted = carrier.For(o.PostedType); it.posted != nil {
		it.body = it.posted.Capacity(o.Posted)
	}
	if it.answer = carrier.For(o.Type); it.answer != nil && o.Fresh() != "" && !pinned && o.Status == http.StatusOK {
		it.down = it.answer.Capacity(o.Body)
	}
	it.grown = len(o.Body) + carrier.Growth(o.Type, it.down)
	it.live = o.Fresh() != "" && (o.Method == "POST" || strings.HasSuffix(o.Type, "json"))
	it.packed = sync.OnceValue(func() []byte { return pack(o.Body) })
	return it
}

// add makes an item known by its request. It returns the one that is known already for requests of the same grammar.
func (c *catalogue) add(it *item) *item {
	key := lengthKey(it.Method, it.URL)
	if it.url+it.body > 0 {
		if known, _ := c.hides(it.Method, it.URL, it.Posted); known != nil {
			return known
		}
		c.hiding[key] = append(c.hiding[key], it)
	}
	if target := it.Method + " " + it.URL; it.url == 0 {
		if known := c.exact[target]; known != nil && it.body == 0 {
			return known
		}
		c.exact[target] = it
	}
	// A site ignores a query that it does not know.
	if path, _, _ := strings.Cut(it.URL, "?"); it.Method == http.MethodGet && c.plain[path] == nil {
		c.plain[path] = it
	}
	return it
}

func lengthKey(method, target string) string { return method + " " + strconv.Itoa(len(target)) }

// match finds what a request asks for, and what it hides. The bytes may be hostile.
func (c *catalogue) match(method, target string, body []byte) (it *item, hidden []byte) {
	if it, hidden = c.hides(method, target, body); it != nil {
		return it, hidden
	}
	if it = c.exact[method+" "+target]; it == nil && method == http.MethodGet {
		path, _, _ := strings.Cut(target, "?")
		it = c.plain[path]
	}
	return it, nil
}

// hides finds the item whose request may hide something, and what.
func (c *catalogue) hides(method, target string, body []byte) (*item, []byte) {
	for _, it := range c.hiding[lengthKey(method, target)] {
		if hidden, ok := it.extract(target, body); ok {
			return it, hidden
		}
	}
	return nil, nil
}

// extract returns what a request for the item hides.
func (it *item) extract(target string, body []byte) (hidden []byte, ok bool) {
	var err error
	if it.url == 0 && target != it.URL {
		return nil, false
	}
	if it.url > 0 {
		if hidden, err = carrier.Target.Extract([]byte(it.URL), []byte(target)); err != nil {
			return nil, false
		}
	}
	if it.sealed {
		hidden = nil
	}
	if it.body == 0 {
		return hidden, bytes.Equal(body, it.Posted)
	}
	more, err := it.posted.Extract(it.Posted, body)
	return append(hidden, more...), err == nil
}

// page returns what a browser fetches at each visit of a page, and whether the page can carry a link.
func (c *catalogue) page(p site.Page, same []*item) (out page, usable bool) {
	out = page{document: same[p.Document].number, links: p.Links}
	up, down := 0, 0
	for _, l := range p.Loads {
		it := same[l.Object]
		if l.Object == p.Document || !c.sealed && it.Fresh() == "" && it.up() == 0 {
			continue // a browser has kept it
		}
		out.loads = append(out.loads, load{it.number, time.Duration(max(0, l.At)) * time.Millisecond})
		if it.live && !slices.Contains(out.live, it.number) {
			out.live = append(out.live, it.number)
			up, down = max(up, it.up()), max(down, it.carries())
		}
	}
	out.bulk = c.bulk(out.loads)
	if c.sealed {
		return out, c.complete(&out)
	}
	return out, up > 0 && down > 0
}

// bulk returns the loads that carry at least a tenth of what the largest one does, the largest first.
func (c *catalogue) bulk(loads []load) []load {
	out, most := slices.Clone(loads), 0
	for _, l := range loads {
		most = max(most, c.items[l.number].carries())
	}
	slices.SortStableFunc(out, func(a, b load) int { return c.items[b.number].carries() - c.items[a.number].carries() })
	return slices.DeleteFunc(out, func(l load) bool { return c.items[l.number].carries() < max(1, most/10) })
}

// pack compresses a body as the site did.
func pack(body []byte) []byte {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	w.Write(body) //nolint:errcheck // a buffer takes all
	w.Close()
	return out.Bytes()
}
