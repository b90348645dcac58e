package remote

import (
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func TestClaimsThatNoPeerGivesAreRefused(t *testing.T) {
	const fine = `{"uid":"2c7c6d51-9b1e-4d0a-8f0e-0d5d1f2e3a4b","storage":"10Gi","accessModes":["ReadWriteOnce"]}`
	for text, want := range map[string]string{
		fine: "",
		strings.Replace(fine, `"ReadWriteOnce"`, `"ReadWriteOncePod"`, 1):                    "",
		strings.Replace(fine, `"ReadWriteOnce"`, `"ReadWriteMany"`, 1):                       "accessModes",
		strings.Replace(fine, `["ReadWriteOnce"]`, `[]`, 1):                                  "accessModes",
		strings.Replace(fine, "10Gi", "-1", 1):                                               "storage",
		strings.Replace(fine, "10Gi", "0", 1):                                                "storage",
		strings.Replace(fine, "10Gi", "much", 1):                                             "storage",
		strings.Replace(fine, "10Gi", strings.Repeat("1", 40), 1):                            "storage",
		strings.Replace(fine, "2c7c6d51", "../x", 1):                                         "uid",
		strings.Replace(fine, "2c7c6d51-9b1e-4d0a-8f0e-0d5d1f2e3a4b", "", 1):                 "uid",
		strings.Replace(fine, `"storage"`, `"volumeMode":"Block","storage"`, 1):              "volumeMode",
		strings.Replace(fine, `"storage"`, `"volumeMode":"Filesystem","storage"`, 1):         "",
		strings.Replace(fine, `"10Gi"`, `"10Gi","x":"`+strings.Repeat("a", maxClaim)+`"`, 1): "more than",
		fine[:20]: "body",
		"":        "body",
	} {
		_, err := ReadClaim(strings.NewReader(text))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%.120s: %v, want %q", text, err, want)
		}
	}
}

// FuzzReadClaim: what a peer sends is read, or refused; what is read can be asked of a cluster.
func FuzzReadClaim(f *testing.F) {
	f.Add(`{"uid":"2c7c6d51-9b1e-4d0a-8f0e-0d5d1f2e3a4b","storage":"10Gi","accessModes":["ReadWriteOnce"]}`)
	f.Add(`{"uid":"a","storage":"1e3","accessModes":["ReadWriteOncePod","ReadWriteOnce"],"volumeMode":"Filesystem"}`)
	f.Fuzz(func(t *testing.T, text string) {
		c, err := ReadClaim(strings.NewReader(text))
		if err != nil {
			return
		}
		if size, err := c.Size(); err != nil || size.Sign() <= 0 || len(c.AccessModes) == 0 || c.UID == "" {
			t.Errorf("%q was taken: %+v", text, c)
		}
	})
}

// FuzzClaimState: what a peer answers is an amount, or nothing.
func FuzzClaimState(f *testing.F) {
	for _, text := range []string{`{}`, `{"phase":"Bound","capacity":"10Gi"}`, `{"phase":"Pending","fileSystemPending":true}`, `{"phase":"Lost"}`, `{"capacity":"-1"}`} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var s ClaimState
		if json.Unmarshal([]byte(text), &s) != nil || s.Validate() != nil || s.Capacity == "" {
			return
		}
		if size, err := resource.ParseQuantity(s.Capacity); err != nil || size.Sign() < 0 || s.Phase != "" && s.Phase != corev1.ClaimBound && s.Phase != corev1.ClaimPending {
			t.Errorf("%q was taken: %+v", text, s)
		}
	})
}
