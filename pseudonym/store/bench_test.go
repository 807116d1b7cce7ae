package store

import (
	"crypto/rand"
	"sync/atomic"
	"testing"

	"heddle/internal/pgtest"
	"heddle/pseudonym"
	"heddle/pseudonym/ca"
)

// Registrations per second, from many people at a time: keys and certificates are made for each.
func BenchmarkRegister(b *testing.B) {
	run := func(b *testing.B, s *shelf) {
		var n atomic.Int64
		b.SetParallelism(8)
		b.RunParallel(func(p *testing.PB) {
			for p.Next() {
				var key ca.KeyID
				_, _ = rand.Read(key[:])
				if _, err := s.Register(b.Context(), "news.example", key, pseudonym.NewOwner()); err != nil {
					b.Error(err)
				}
				n.Add(1)
			}
		})
		b.ReportMetric(float64(n.Load())/b.Elapsed().Seconds(), "registrations/s")
	}
	b.Run("SQLite", func(b *testing.B) { run(b, newShelf(b)) })
	b.Run("PostgreSQL", func(b *testing.B) { run(b, newShelfIn(b, pgtest.Start(b).Database(b))) })
}
