package database

import (
	"reflect"
	"testing"
	"time"

	"heddle/pseudonym"
	"heddle/pseudonym/ca"
)

// The holders of a site's pseudonyms: the last ones first, and no others than can use them.
func TestHolders(t *testing.T) {
	both(t, func(t *testing.T, at string) {
		ctx, d := t.Context(), open(t, at)
		for i, site := range []string{"store.example", "a.example"} {
			if err := d.AddTenant(ctx, Tenant{Site: site, Client: ca.KeyID{byte(i)}, Created: now}); err != nil {
				t.Fatal(err)
			}
		}
		add := func(site string, age, left time.Duration) Holder {
			p := sample(site, pseudonym.NewOwner())
			p.Client, p.Created, p.Expires = ca.KeyID{byte(age / time.Minute)}, now.Add(-age), now.Add(left)
			if err := d.Add(ctx, p); err != nil {
				t.Fatal(err)
			}
			return Holder{p.Label, p.Client, p.Capability, p.Created, p.Expires}
		}
		oldest, middle, newest := add("store.example", 3*time.Minute, time.Hour), add("store.example", 2*time.Minute, time.Hour), add("store.example", time.Minute, time.Hour)
		add("a.example", time.Minute, time.Hour)
		add("store.example", time.Minute, 0)
		if err := d.Revoke(ctx, add("store.example", time.Minute, time.Hour).Label, now); err != nil {
			t.Fatal(err)
		}
		for name, c := range map[string]struct {
			since time.Time
			most  int
			want  []Holder
		}{
			"all":      {time.Time{}, 10, []Holder{newest, middle, oldest}},
			"new ones": {middle.Created, 10, []Holder{newest, middle}},
			"few":      {time.Time{}, 2, []Holder{newest, middle}},
		} {
			if got, err := d.Holders(ctx, "store.example", c.since, now, c.most); err != nil || !reflect.DeepEqual(got, c.want) {
				t.Errorf("%s: %v, %v; want %v", name, got, err, c.want)
			}
		}
	})
}
