package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kith.dev/core/api"
)

const (
	movesIn  = "moves"  // namespace
	movesAll = 1 << 30  // bytes of the one file in the volume
	movesOne = 64 << 20 // that it is made of
)

// moves has a volume with one large file go to bob and home again, by turns with as many bytes by TLS on TCP from a server of Go's at alice.
func moves(ctx context.Context, r *rig) error {
	if err := r.storage(ctx); err != nil {
		return err
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: movesIn}}
	if _, err := r.alice.kube.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err != nil {
		return err
	}
	defer func() {
		_ = r.alice.kube.CoreV1().Namespaces().Delete(context.WithoutCancel(ctx), movesIn, metav1.DeleteOptions{})
	}()
	if _, err := r.alice.kith.Offload(ctx, movesIn, api.OffloadOptions{Volumes: api.VolumesAnywhere}, nil); err != nil {
		return err
	}
	if _, err := r.alice.kube.AppsV1().StatefulSets(movesIn).Create(ctx, oneWithAClaim(), metav1.CreateOptions{}); err != nil {
		return err
	}
	ready := func(node string) (time.Time, error) {
		return until(ctx, "its pod is Ready at "+node, func() bool {
			p, err := r.alice.kube.CoreV1().Pods(movesIn).Get(ctx, "store-0", metav1.GetOptions{})
			return err == nil && isReady(p) && p.DeletionTimestamp == nil && p.Spec.NodeName == node
		})
	}
	if _, err := ready("alice"); err != nil {
		return err
	}
	text := make([]byte, movesOne)
	_, _ = rand.NewChaCha8([32]byte{}).Read(text)
	if err := fillVolume(r.alice, text); err != nil {
		return err
	}
	plain, err := r.plainTLS(bytes.Repeat(text, movesAll/movesOne))
	if err != nil {
		return err
	}
	defer plain.Close()
	direct := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: r.bob.Dial, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} //nolint:gosec // its key is of this moment
	for range max(2, r.rounds/3) {
		for _, to := range []struct{ name, node string }{{"bob", abroad}, {api.Home, "alice"}} {
			began := time.Now()
			if _, err := r.alice.kith.MoveVolume(ctx, api.MoveOptions{Namespace: movesIn, Claim: "data-store-0", To: to.name, Wait: true}, nil); err != nil {
				return err
			}
			moved := time.Since(began)
			again, err := ready(to.node)
			if err != nil {
				return err
			}
			where := "to a peer"
			if to.name == api.Home {
				where = "home"
			}
			r.report.Took(fmt.Sprintf("volume with a file of %d MiB moved %s: the command", movesAll>>20, where), moved)
			r.report.Took(fmt.Sprintf("volume with a file of %d MiB moved %s: its pod is Ready again", movesAll>>20, where), again.Sub(began))
			took, err := r.copied(ctx)
			if err != nil {
				return err
			}
			speed, err := fetch(ctx, direct, plain.URL, movesAll)
			if err != nil {
				return err
			}
			copied := float64(movesAll) / 1e6 / took.Seconds()
			r.report.Pair("files of a volume, copied "+where, "MB/s", "volume move", copied, "plain TLS", speed)
			if speed, err = r.fetchFile(ctx, direct, plain.URL); err != nil {
				return err
			}
			r.report.Pair("files of a volume, on the disk "+where, "MB/s", "volume move", copied, "plain TLS into a file", speed)
		}
	}
	return nil
}

// fetchFile has as many bytes on the disk that bob's volumes are on.
func (r *rig) fetchFile(ctx context.Context, by *http.Client, url string) (speed float64, err error) {
	f, err := os.CreateTemp(r.bob.Path("/var/lib/kith/k8s/storage"), "plain")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(f.Name())) }()
	return fetchInto(ctx, by, url, movesAll, f, f.Sync)
}

// storage has alice's contract grant some.
func (r *rig) storage(ctx context.Context) error {
	if out, err := r.bob.Kith(ctx, "share", "--storage", "8Gi"); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	if out, err := r.alice.Kith(ctx, "peer", "bob", "--storage", "4Gi", "--wait=false"); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	if _, err := until(ctx, "bob is asked for storage", func() bool {
		all, err := r.bob.kith.Requests(ctx)
		return err == nil && len(all) > 0
	}); err != nil {
		return err
	}
	if out, err := r.bob.Kith(ctx, "accept", "alice", "--yes"); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	_, err := until(ctx, "bob grants storage", func() bool {
		out, err := r.alice.Kith(ctx, "contract", "list", "-o", "json")
		return err == nil && strings.Contains(out, `"storage": "4Gi"`)
	})
	return err
}

// oneWithAClaim is a pod with a claim, at home as long as its volume is.
func oneWithAClaim() *appsv1.StatefulSet {
	labels := map[string]string{"app": "store"}
	spec := podSpec("", echo())
	spec.Affinity = prefer("alice")
	spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
	return &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "store"}, Spec: appsv1.StatefulSetSpec{
		ServiceName: "store", Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec},
		VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}, Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Gi")}},
		}}},
	}}
}

// fillVolume writes the file into the volume of the claim at home.
func fillVolume(n *node, text []byte) error {
	found, err := filepath.Glob(filepath.Join(n.Path("/var/lib/kith/k8s/storage"), "*_kith-volumes_*"))
	if err != nil || len(found) != 1 {
		return fmt.Errorf("the volume of the claim: %v, %w", found, err)
	}
	f, err := os.Create(filepath.Join(found[0], "large"))
	if err != nil {
		return err
	}
	for range movesAll / movesOne {
		if _, err := f.Write(text); err != nil {
			return errors.Join(err, f.Close())
		}
	}
	return errors.Join(f.Sync(), f.Close())
}

var copiedLine = regexp.MustCompile(`a guest's volume was copied.* sent=(\d+) took=(\S+)`)

// copied is how long bob's end of the last copy took in which all was sent.
func (r *rig) copied(ctx context.Context) (took time.Duration, err error) {
	var text bytes.Buffer
	if err := r.bob.Logs(ctx, &text, "kithd", false); err != nil {
		return 0, err
	}
	for _, m := range copiedLine.FindAllStringSubmatch(text.String(), -1) {
		if m[1] == fmt.Sprint(movesAll) {
			if took, err = time.ParseDuration(m[2]); err != nil {
				return 0, err
			}
		}
	}
	if took == 0 {
		return 0, errors.New("bob's log tells of no copy")
	}
	return took, nil
}
