package split

import (
	"net/netip"
	"testing"

	"heddle/path/resolve"
)

var oldPlace, newPlace, forgedPlace = netip.MustParseAddrPort("192.0.2.1:5555"), netip.MustParseAddrPort("192.0.2.2:5555"), netip.MustParseAddrPort("203.0.113.66:5555")

// said is what the name's addresses were over each of three networks.
func said(home, lte, office []netip.AddrPort) []resolve.Answer {
	return []resolve.Answer{{Witness: resolve.Witness{Observer: "if:home"}, Addresses: home},
		{Witness: resolve.Witness{Observer: "if:lte"}, Addresses: lte}, {Witness: resolve.Witness{Observer: "if:office"}, Addresses: office}}
}

func TestWhereTheServerIs(t *testing.T) {
	type addresses = []netip.AddrPort
	type proofs = map[netip.AddrPort]int
	here, there, forged := addresses{oldPlace}, addresses{newPlace}, addresses{forgedPlace}
	both := addresses{oldPlace, newPlace}
	for name, c := range map[string]struct {
		at, heard netip.AddrPort
		lost      bool
		known     addresses
		answers   []resolve.Answer // nil if nobody answered
		proves    bool
		proven    proofs
		want      netip.AddrPort
	}{
		// A relay cannot ask the server.
		"it is heard":                    {oldPlace, oldPlace, false, here, said(there, there, there), false, nil, oldPlace},
		"it moved":                       {oldPlace, oldPlace, true, here, said(there, there, there), false, nil, newPlace},
		"it moved, and one path is dead": {oldPlace, oldPlace, true, here, said(nil, there, there), false, nil, newPlace},
		"it moved, and one path lies":    {oldPlace, oldPlace, true, here, said(forged, there, there), false, nil, newPlace},
		"one path lies":                  {oldPlace, oldPlace, true, here, said(forged, here, here), false, nil, oldPlace},
		"one path lies, and the others get no answer":    {oldPlace, oldPlace, true, here, said(forged, nil, nil), false, nil, oldPlace},
		"one path says everything":                       {oldPlace, oldPlace, true, here, said(addresses{forgedPlace, oldPlace}, here, here), false, nil, oldPlace},
		"it has a second address":                        {oldPlace, oldPlace, true, here, said(both, both, both), false, nil, oldPlace},
		"nobody answers":                                 {oldPlace, oldPlace, true, here, nil, false, nil, oldPlace},
		"nothing was heard at the new address":           {newPlace, oldPlace, true, both, said(there, there, there), false, nil, oldPlace},
		"nothing was heard there, and nobody answers":    {newPlace, oldPlace, true, both, nil, false, nil, oldPlace},
		"it was heard there, and is lost again":          {newPlace, newPlace, true, both, said(there, there, there), false, nil, oldPlace},
		"it moved back":                                  {newPlace, newPlace, true, both, said(here, here, here), false, nil, oldPlace},
		"it was heard there, and this machine is alone":  {newPlace, newPlace, true, both, nil, false, nil, newPlace},
		"one path wants it back where it never answered": {newPlace, newPlace, false, both, said(here, there, there), false, nil, newPlace},

		// A WireGuard server proves that it is at an address.
		"proven where all say":              {oldPlace, oldPlace, true, here, said(there, there, there), true, proofs{newPlace: 1}, newPlace},
		"unproven where all say":            {oldPlace, oldPlace, true, here, said(there, there, there), true, nil, oldPlace},
		"proven where one path says":        {oldPlace, oldPlace, true, here, said(forged, here, here), true, proofs{forgedPlace: 1}, oldPlace},
		"proven at a former address":        {newPlace, newPlace, true, both, nil, true, proofs{oldPlace: 1}, oldPlace},
		"heard, and one path proves it old": {newPlace, newPlace, false, both, nil, true, proofs{oldPlace: 1}, newPlace},
		"heard, and two paths prove it old": {newPlace, newPlace, false, both, nil, true, proofs{oldPlace: 2}, oldPlace},
		"heard where it was first":          {oldPlace, oldPlace, false, both, nil, true, proofs{newPlace: 2}, oldPlace},
	} {
		t.Run(name, func(t *testing.T) {
			named := resolve.Agreed(c.answers, resolve.Enough)
			p := &places{}
			p.add(c.known...)
			p.add(named...)
			v := view{at: c.at, heard: c.heard, lost: c.lost, known: p.all(), named: named, answered: c.answers != nil,
				proves: c.proves, proven: c.proven, need: resolve.Enough}
			if got := v.decide(); got != c.want {
				t.Errorf("it sends to %v, want %v", got, c.want)
			}
		})
	}
}

// A name that has another address each day must not push out where the session began.
func TestPlacesKeepTheFirst(t *testing.T) {
	p := &places{}
	p.add(oldPlace)
	for i := range 1000 {
		p.add(netip.AddrPortFrom(newPlace.Addr(), uint16(i+1)))
	}
	all := p.all()
	if len(all) != placesKept || all[0] != oldPlace || all[placesKept-1].Port() != 1000 {
		t.Errorf("kept: %v", all)
	}
}
