package remote

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// FuzzReadSnapshot: what a peer sends is read, or refused; what is read names one snapshot, and a claim or none.
func FuzzReadSnapshot(f *testing.F) {
	for _, text := range []string{
		`{"uid":"2c7c6d51","claim":"data","claimUID":"a1"}`, `{"uid":"a"}`, `{"uid":"a","claim":"data"}`, `{"uid":"..","claim":"data","claimUID":"a1"}`, `{"uid":"a","UID":"b"}`, strings.Repeat(" ", maxSnapshot+1),
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ReadSnapshot(strings.NewReader(text))
		if err == nil && (s.UID == "" || len(s.UID) > maxUID || (s.Claim == "") != (s.ClaimUID == "") || len(text) > maxSnapshot) {
			t.Errorf("%q was taken: %+v", text, s)
		}
	})
}

// FuzzSnapshotState: what a peer answers can be said of a VolumeSnapshot.
func FuzzSnapshotState(f *testing.F) {
	for _, text := range []string{
		`{}`, `{"ready":true,"size":1,"creationTime":"2026-11-30T20:00:00Z"}`, `{"ready":true,"size":1}`, `{"size":-1}`, `{"why":"no room"}`, `{"ready":true,"size":1,"creationTime":"9999-11-30T20:00:00Z"}`,
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var s SnapshotState
		if json.Unmarshal([]byte(text), &s) != nil || s.Validate() != nil || !s.Ready {
			return
		}
		if at := time.Unix(0, s.CreationTime.UnixNano()); s.Size <= 0 || at.Unix() != s.CreationTime.Unix() {
			t.Errorf("%q was taken: %+v", text, s)
		}
	})
}
