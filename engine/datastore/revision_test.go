package datastore

import (
	"fmt"
	"path/filepath"
	"sync"
	"testing"
)

// Who lists nothing watches from the revision that came with it: what was made at that revision or before it would never be told of.
func TestAListOfNothingIsNotNewerThanWhatItLacks(t *testing.T) {
	b := open(t, filepath.Join(t.TempDir(), "state.db"))
	for name, look := range map[string]func(key string) (int64, int, error){
		"list": func(key string) (int64, int, error) {
			revision, found, err := b.List(t.Context(), key, key+"0", 0, 0, false)
			return revision, len(found), err
		},
		"get": func(key string) (int64, int, error) {
			revision, found, err := b.Get(t.Context(), key+"/one", 0, false)
			if found == nil {
				return revision, 0, err
			}
			return revision, 1, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			const readers = 8
			for i := range 500 {
				key := fmt.Sprintf("/registry/%s/%d", name, i)
				var seen [readers]int64 // the newest revision at which the reader found nothing
				var made int64
				var all sync.WaitGroup
				begin := make(chan struct{})
				for n := range readers {
					all.Go(func() {
						<-begin
						for range 20 {
							revision, found, err := look(key)
							if err != nil {
								t.Error(err)
							}
							if err != nil || found > 0 {
								return
							}
							seen[n] = revision
						}
					})
				}
				all.Go(func() {
					<-begin
					var err error
					if made, err = b.Create(t.Context(), key+"/one", []byte("x"), 0); err != nil {
						t.Error(err)
					}
				})
				close(begin)
				all.Wait()
				for _, revision := range seen {
					if revision >= made {
						t.Fatalf("try %d: at revision %d there was nothing, but it was made at %d", i, revision, made)
					}
				}
			}
		})
	}
}
