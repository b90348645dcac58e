package offloading

import (
	"encoding/json"
	"os"
	"testing"
)

// The API server's own evaluator tries the policy in engine/component, which is another module and reads it from this file.
func TestTheFileHasThePolicy(t *testing.T) {
	const path = "testdata/policy.json"
	want, err := json.MarshalIndent(leavePolicy(), "", " ")
	if err != nil {
		t.Fatal(err)
	}
	want = append(want, '\n')
	if os.Getenv("KITH_UPDATE") != "" {
		if err := os.WriteFile(path, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if is, err := os.ReadFile(path); err != nil || string(is) != string(want) {
		t.Errorf("%s is not the policy of this package (KITH_UPDATE=1 writes it): %v", path, err)
	}
}
