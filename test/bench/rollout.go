package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	replicas = 10
	common   = 32 << 20 // what all versions of the image have beside the program, in bytes
	built    = 1 << 20  // what each version has of its own
)

// rollout updates a Deployment of ten pods on two peers to a version of its image that only home has, of which the peers have all but the last
// layer, as after a developer's next build; by turns with one whose image every laptop has.
func rollout(ctx context.Context, r *rig) (err error) {
	home, down, err := three(ctx, r, "rollout")
	defer func() { err = errors.Join(err, down()) }()
	if err != nil {
		return err
	}
	if out, err := home.alice.Kith(ctx, "offload", namespace, "--strategy", "remote"); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	dir, err := os.MkdirTemp("", "kith-bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	base, err := echoImage(ctx, dir)
	if err != nil {
		return err
	}
	archive := filepath.Join(dir, "roll.tar")
	if base, _, err = withLayer(base, common, "shop/roll:base", archive); err != nil {
		return err
	}
	build := func(version int) (name string, err error) {
		name = fmt.Sprintf("shop/roll:%d", version)
		if _, _, err = withLayer(base, built, name, archive); err != nil {
			return "", err
		}
		f, err := os.Open(archive)
		if err != nil {
			return "", err
		}
		defer f.Close()
		_, err = home.alice.kith.LoadImages(ctx, f, "")
		return name, err
	}
	first, err := build(0)
	if err != nil {
		return err
	}
	ways := []string{"home", "everywhere"}
	for name, image := range map[string]string{"home": first, "everywhere": "kith.dev/echo:1"} {
		if err := home.deploy(ctx, name, image); err != nil {
			return err
		}
	}
	rounds := max(3, r.rounds/3)
	for i := range rounds {
		took := map[string]float64{}
		next, err := build(i + 1)
		if err != nil {
			return err
		}
		for k := range ways {
			name := ways[(i+k)%2]
			image := "kith.dev/echo:1"
			if name == "home" {
				image = next
			}
			d, err := home.update(ctx, name, image, i)
			if err != nil {
				return err
			}
			took[name] = d.Seconds()
		}
		r.report.pair("rolling update of ten pods on two peers", "s", "an image that only home has", took["home"], "one that is everywhere", took["everywhere"])
	}
	return nil
}

func (r *rig) deploy(ctx context.Context, name, image string) error {
	labels := map[string]string{"app": name}
	_, err := r.alice.kube.AppsV1().Deployments(namespace).Create(ctx, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: appsv1.DeploymentSpec{
		Replicas: new(int32(replicas)), Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: podSpec("", container("app", image))},
	}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	return r.rolled(ctx, name, 1)
}

// update changes the image of a Deployment, or restarts it, and says how long it took until all its pods were new and ready.
func (r *rig) update(ctx context.Context, name, image string, round int) (time.Duration, error) {
	began := time.Now()
	patch := fmt.Sprintf(`{"spec":{"template":{"metadata":{"annotations":{"round":"%d"}},"spec":{"containers":[{"name":"app","image":%q}]}}}}`, round, image)
	d, err := r.alice.kube.AppsV1().Deployments(namespace).Patch(ctx, name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
	if err == nil {
		err = r.rolled(ctx, name, d.Generation)
	}
	return time.Since(began), err
}

func (r *rig) rolled(ctx context.Context, name string, generation int64) error {
	_, err := until(ctx, "Deployment "+name+" is rolled out", func() bool {
		d, err := r.alice.kube.AppsV1().Deployments(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false
		}
		s := d.Status
		return s.ObservedGeneration >= generation && s.UpdatedReplicas == replicas && s.Replicas == replicas && s.AvailableReplicas == replicas
	})
	return err
}
