package main

import (
	"context"
	"fmt"
	"log"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
)

// modes tethers alice to bob and back, whose policy answers: the commands, and until her kubectl is at bob's and at her own again.
func modes(ctx context.Context, r *rig) error {
	if err := r.laptops(ctx); err != nil {
		return err
	}
	for _, n := range []*node{r.alice, r.bob} {
		if _, err := until(ctx, "kithd is ready", func() bool {
			s, err := n.kith.Status(ctx)
			return err == nil && s.Engine.State == api.EngineReady
		}); err != nil {
			return err
		}
	}
	mine, err := r.alice.kith.Status(ctx)
	if err != nil {
		return err
	}
	theirs, err := r.bob.kith.Status(ctx)
	if err != nil {
		return err
	}
	policy := fmt.Sprintf(`{"apiVersion": "kith.dev/v1alpha1", "kind": "TetherPolicy", "metadata": {"name": "bench"},
		"spec": {"peers": [%q], "autoAccept": true, "namespaces": [{"name": "bench-team", "clusterRole": "edit"}]}}`, mine.ID)
	if out, err := r.bob.KubectlInput(ctx, strings.NewReader(policy), "apply", "-f", "-"); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	defer func() {
		if out, err := r.bob.Kubectl(context.WithoutCancel(ctx), "delete", "tetherpolicy", "bench"); err != nil {
			log.Printf("%v\n%s", err, out)
		}
	}()
	text, err := r.alice.kith.Kubeconfig(ctx)
	if err != nil {
		return err
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(text)
	if err != nil {
		return err
	}
	config.Dial, config.QPS = r.alice.Dial, -1
	front, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	atCompany := func() bool {
		_, err := front.CoreV1().Pods("bench-team").List(ctx, metav1.ListOptions{})
		return err == nil
	}
	for range r.rounds {
		began := time.Now()
		if out, err := r.alice.Kith(ctx, "tether", "bob", "--yes", "--id", theirs.ID); err != nil {
			return fmt.Errorf("%w\n%s", err, out)
		}
		r.report.took("tether: the command", time.Since(began))
		is, err := until(ctx, "kubectl is at the company", atCompany)
		if err != nil {
			return err
		}
		r.report.took("tether: until kubectl is at the company", is.Sub(began))
		began = time.Now()
		if out, err := r.alice.Kith(ctx, "untether", "--yes"); err != nil {
			return fmt.Errorf("%w\n%s", err, out)
		}
		r.report.took("untether: the command", time.Since(began))
		is, err = until(ctx, "kubectl is at home", func() bool {
			_, err := front.CoreV1().Nodes().Get(ctx, "alice", metav1.GetOptions{})
			return err == nil
		})
		if err != nil {
			return err
		}
		r.report.took("untether: until kubectl is at home", is.Sub(began))
		if _, err := until(ctx, "the company has no node of alice's", func() bool {
			nodes, err := r.bob.kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: v1alpha1.LabelPeer})
			return err == nil && len(nodes.Items) == 0
		}); err != nil {
			return err
		}
	}
	return nil
}
