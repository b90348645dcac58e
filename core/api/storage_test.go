package api

import (
	"strings"
	"testing"
)

// Storage of a class has the name that a ResourceQuota gives it, and is counted in bytes; nothing else is taken for it, and it is no device.
func TestStorageOfAClassHasTheNameOfAQuota(t *testing.T) {
	const fast = "fast.storageclass.storage.k8s.io/requests.storage"
	for class, name := range map[string]string{"": "storage", "fast": fast, "a.b-c": "a.b-c.storageclass.storage.k8s.io/requests.storage"} {
		if is := StorageOf(class); is != name {
			t.Errorf("%q: %s", class, is)
		}
		if is, storage := StorageClass(name); is != class || !storage || !InBytes(name) || Extended(name) || Countable(name) {
			t.Errorf("%s: class %q, %t", name, is, storage)
		}
	}
	for _, name := range []string{
		"memory", "requests.storage", ".storageclass.storage.k8s.io/requests.storage", "Fast.storageclass.storage.k8s.io/requests.storage", "a/b.storageclass.storage.k8s.io/requests.storage",
		"fast.storageclass.storage.k8s.io/persistentvolumeclaims", strings.Repeat("a", 64) + ".storageclass.storage.k8s.io/requests.storage", fast + " ",
	} {
		if class, is := StorageClass(name); is {
			t.Errorf("%q is storage of class %q", name, class)
		}
		if strings.Contains(name, "/requests.storage") && CheckResources("r", Resources{name: "1Gi"}, true) == nil {
			t.Errorf("%q is taken", name)
		}
	}
	for amount, good := range map[string]bool{"2Gi": true, "50%": false, "50% of free": false, "-1": false} {
		if err := CheckResources("r", Resources{fast: amount}, true); (err == nil) != good {
			t.Errorf("%s: %v", amount, err)
		}
	}
	if CheckAsked("r", Resources{fast: "1"}) == nil || CheckAsked("r", Resources{fast: "1Mi"}) != nil {
		t.Error("less than 1Mi is no amount of storage")
	}
	if words := (Resources{"cpu": "2", "storage": "10Gi", fast: "2Gi"}).String(); words != "cpu 2, storage 10Gi, storage (fast) 2Gi" {
		t.Error(words)
	}
	if words := Change(Resources{fast: "1Gi"}, Resources{fast: "2Gi"}, Resources{fast: "3Gi"}); words != "storage (fast) 1Gi → 2Gi (asked 3Gi)" {
		t.Error(words)
	}
	if is := Rounded(fast, "2048Mi"); is != "2Gi" {
		t.Error(is)
	}
}
