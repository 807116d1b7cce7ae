package site

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"heddle/disguise/carrier"
)

// Report says what a site can hide, and what shows.
type Report struct {
	Fingerprint string       `json:"fingerprint"`
	Types       []TypeRoom   `json:"types"`
	Pages       []PageRoom   `json:"pages"`
	Objects     []ObjectRoom `json:"objects"` // those with room
	Notices     []Notice     `json:"notices"`
	Failed      int          `json:"failed"` // objects that a judge refused
	Unjudged    []Unjudged   `json:"unjudged"`
}

// Unjudged are objects with room of one type at which no judge looked.
type Unjudged struct {
	Type    string `json:"type"`
	Objects int    `json:"objects"`
	Why     string `json:"why"` // what to install, or that programs refuse what was recorded
}

// ObjectRoom is what one object can hide.
type ObjectRoom struct {
	URL      string   `json:"url"`
	Type     string   `json:"type"`
	Capacity int      `json:"capacity"` // bytes of payload
	Wire     int      `json:"wire"`     // bytes of the object with payload, compressed as it was recorded
	Fresh    string   `json:"fresh"`    // why each visit may get other bytes; without a reason the room is not used
	Judges   []string `json:"judges"`   // that compared it with the original
	Failure  string   `json:"failure,omitempty"`
}

// TypeRoom is what the objects of one type can hide. Only fresh URLs count as used.
type TypeRoom struct {
	Type     string `json:"type"`
	Objects  int    `json:"objects"`
	Capacity int    `json:"capacity"` // bytes of payload in fresh URLs
	Wire     int    `json:"wire"`     // bytes of those objects
	Unused   int    `json:"unused"`   // bytes of room in stable URLs
}

// PageRoom is what one visit of a page can hide, its loads included.
type PageRoom struct {
	URL      string `json:"url"`
	Loads    int    `json:"loads"`
	Capacity int    `json:"capacity"`
	Wire     int    `json:"wire"` // bytes of those of its objects that hide something
}

// Notice is something that a prober could see.
type Notice struct {
	URL  string `json:"url"` // "" for the whole site
	Text string `json:"text"`
}

// Check hides random bytes in each object that has room, and has judges compare it with the original.
func Check(ctx context.Context, s *Site) (*Report, error) {
	r := &Report{Fingerprint: fmt.Sprintf("%x", s.Fingerprint), Types: []TypeRoom{}, Pages: []PageRoom{}, Objects: []ObjectRoom{}, Notices: []Notice{}, Unjudged: []Unjudged{}}
	fixed, types, rooms, beginnings := s.Pinned(), map[string]*TypeRoom{}, map[int]ObjectRoom{}, s.beginnings()
	for i := range s.Objects {
		o := &s.Objects[i]
		t := types[o.Type]
		if t == nil {
			t = &TypeRoom{Type: o.Type}
			types[o.Type] = t
		}
		t.Objects++
		room, err := o.room(ctx, beginnings)
		if err != nil {
			return nil, err
		}
		if room.Capacity == 0 {
			continue
		}
		if fixed[i] {
			room.Fresh = ""
			r.notice(o, "a page loads it only with the hash that it states (integrity)")
		}
		if room.Failure != "" {
			r.Failed++
		} else if why := lacks(room.Type, room.Judges); why != "" {
			r.unjudged(room.Type, why)
		}
		r.Objects = append(r.Objects, room)
		if room.Fresh == "" || room.Failure != "" {
			t.Unused += room.Capacity
		} else {
			t.Capacity, t.Wire, rooms[i] = t.Capacity+room.Capacity, t.Wire+room.Wire, room
		}
		r.look(o, room)
	}
	for _, t := range slices.SortedFunc(maps.Values(types), func(a, b *TypeRoom) int {
		return cmp.Or(cmp.Compare(b.Capacity, a.Capacity), cmp.Compare(b.Unused, a.Unused), cmp.Compare(a.Type, b.Type))
	}) {
		r.Types = append(r.Types, *t)
	}
	for _, p := range s.Pages {
		r.Pages = append(r.Pages, s.pageRoom(p, rooms))
	}
	if len(rooms) == 0 {
		r.Notices = append(r.Notices, Notice{"", "nothing can be hidden. A site has room if its answers differ at each visit and hold random tokens (JSON, hidden " +
			"fields of forms), PNG with transparency, or encrypted media, under Cache-Control: private or no-store. Record each page twice"})
	}
	return r, nil
}

func (s *Site) pageRoom(p Page, rooms map[int]ObjectRoom) PageRoom {
	out := PageRoom{URL: s.Objects[p.Document].URL, Loads: len(p.Loads)}
	seen := map[int]bool{}
	for _, l := range append([]Load{{Object: p.Document}}, p.Loads...) {
		if room, found := rooms[l.Object]; found && !seen[l.Object] {
			seen[l.Object] = true
			out.Capacity, out.Wire = out.Capacity+room.Capacity, out.Wire+room.Wire
		}
	}
	return out
}

// room hides random bytes in an object, takes them out again, and asks the judges.
func (o *Object) room(ctx context.Context, beginnings [][]byte) (ObjectRoom, error) {
	room := ObjectRoom{URL: o.URL, Type: o.Type, Fresh: o.Fresh(), Judges: []string{}}
	c := carrier.For(o.Type)
	if c == nil || o.Status != 200 || o.Method == "HEAD" {
		return room, nil
	}
	if room.Capacity = c.Capacity(o.Body); room.Capacity == 0 {
		return room, nil
	}
	payload := make([]byte, room.Capacity)
	if _, err := rand.Read(payload); err != nil {
		return room, err
	}
	changed, err := c.Embed(o.Body, payload)
	if err != nil {
		room.Failure = err.Error()
		return room, nil
	}
	room.Wire = wire(changed, o.Encoding)
	if got, err := c.Extract(o.Body, changed); err != nil || !bytes.Equal(got, payload) {
		room.Failure = "what was hidden does not come out again"
		return room, nil
	}
	for _, j := range judges(o.Type) {
		if o.media() {
			j = j.behind(beginnings)
		}
		switch err := j.same(ctx, o.Body, changed); {
		case ctx.Err() != nil:
			return room, ctx.Err()
		case errors.Is(err, errNoVerdict):
		case err != nil:
			room.Failure = j.name + ": " + err.Error()
		default:
			room.Judges = append(room.Judges, j.name)
		}
	}
	return room, nil
}

// wire is the size of a body on the wire. For encodings other than gzip it is about right: what is hidden does not compress in any.
func wire(body []byte, encoding string) int {
	if encoding == "" || encoding == "identity" {
		return len(body)
	}
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	w.Write(body) //nolint:errcheck // a buffer takes all
	w.Close()
	return packed.Len()
}

var hashed = regexp.MustCompile(`[.-][0-9a-f]{8,}\.[a-z0-9]+$`)

func (r *Report) notice(o *Object, text string) { r.Notices = append(r.Notices, Notice{o.URL, text}) }

// media reports whether the object is of MP4.
func (o *Object) media() bool {
	return strings.HasSuffix(o.Type, "/mp4") || strings.HasSuffix(o.Type, "/iso.segment")
}

// mostBeginnings is with how many beginnings of media a judge tries a segment.
const mostBeginnings = 8

// beginnings returns the parts of media without samples, behind which a player puts the others (ISO/IEC 14496-12, section 8.16).
func (s *Site) beginnings() (all [][]byte) {
	for i := range s.Objects {
		if o := &s.Objects[i]; o.media() && len(all) < mostBeginnings && bytes.Contains(o.Body, []byte("moov")) && !bytes.Contains(o.Body, []byte("moof")) {
			all = append(all, o.Body)
		}
	}
	return all
}

// unjudged counts an object at which no judge looked.
func (r *Report) unjudged(mediaType, why string) {
	for i := range r.Unjudged {
		if u := &r.Unjudged[i]; u.Type == mediaType && u.Why == why {
			u.Objects++
			return
		}
	}
	r.Unjudged = append(r.Unjudged, Unjudged{mediaType, 1, why})
}

// look lists what a prober could notice of an object with room.
func (r *Report) look(o *Object, room ObjectRoom) {
	if room.Failure != "" {
		r.notice(o, "a judge refuses it: "+room.Failure)
	}
	if room.Fresh == "" {
		r.notice(o, fmt.Sprintf("its bytes are the same at each visit, so its room for %d bytes is not used", room.Capacity))
		return
	}
	if !o.Varies && o.Method == "GET" {
		r.notice(o, "its header allows other bytes at each visit, but the recording shows no two different ones")
	}
	for _, name := range []string{"etag", "last-modified", "digest", "content-digest", "repr-digest"} {
		if o.Get(name) != "" {
			r.notice(o, name+" must change with its bytes")
		}
	}
	if target, err := url.Parse(o.URL); err == nil && hashed.MatchString(target.Path) {
		r.notice(o, "its name looks like a hash of its content")
	}
	switch {
	case o.Type == "image/png":
		r.notice(o, fmt.Sprintf("it grows from %d to %d bytes, and whoever looks below its transparent pixels finds noise", len(o.Body), room.Wire))
	case o.Type == "image/jpeg":
		r.notice(o, "whoever counts its coefficients finds that 2 and 3, 4 and 5, and so on, are about as frequent, as in no recorded picture")
	case o.Type == "application/pdf":
		r.notice(o, "whoever has its password, or opens the files that are attached to it, finds noise")
	case o.Type == "application/x-shockwave-flash":
		r.notice(o, "no current browser plays it, and scripts in it find noise in their data")
	case strings.HasSuffix(o.Type, "woff2"):
		r.notice(o, "it has private data, as few fonts do")
	case o.media():
		r.notice(o, "whoever has the key of the media decodes noise")
	}
}

// Pinned returns the objects that a page loads only with the hash that it states: they carry no payload.
func (s *Site) Pinned() map[int]bool {
	fixed, objects := map[int]bool{}, s.numbers()
	for _, p := range s.Pages {
		for _, reference := range pinned(s.Objects[p.Document].Body) {
			if number, found := s.find(objects, p.Document, reference); found {
				fixed[number] = true
			}
		}
	}
	return fixed
}

// numbers returns the objects by method and URL.
func (s *Site) numbers() map[string]int {
	objects := map[string]int{}
	for i := range s.Objects {
		objects[s.Objects[i].Method+" "+s.Objects[i].URL] = i
	}
	return objects
}
