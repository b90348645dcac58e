package store

import (
	"fmt"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func object(namespace, name string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}

func TestOnlySoMuchIsKept(t *testing.T) {
	s := New[*metav1.PartialObjectMetadata](5000)
	for i := range 5000 {
		if err := s.Put(object(fmt.Sprint(i%1000), fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
	more := object("shop", "more")
	if s.Put(more) == nil {
		t.Error("one more is kept")
	}
	s.DeleteAll("7")
	if err := s.Put(more); err != nil {
		t.Error(err)
	}
	if n := len(s.All()); n != 4996 || len(s.In("8")) != 5 || s.Has("7") {
		t.Errorf("%d are left, %d in 8", n, len(s.In("8")))
	}
}

func TestWhatIsNotToldAgainIsSweptAway(t *testing.T) {
	var told []string
	s := New[*metav1.PartialObjectMetadata](10)
	s.OnChange(func(was, is *metav1.PartialObjectMetadata) {
		switch {
		case was == nil:
			told = append(told, "+"+is.Name)
		case is == nil:
			told = append(told, "-"+was.Name)
		default:
			told = append(told, "="+is.Name)
		}
	})
	for _, stream := range [][]string{{"a", "b"}, {"b"}} {
		s.Begin()
		for _, name := range stream {
			if err := s.Put(object("shop", name)); err != nil {
				t.Fatal(err)
			}
		}
		s.Sweep()
	}
	s.Delete("shop", "never there", nil)
	s.Delete("shop", "b", nil)
	if want := []string{"+a", "+b", "=b", "-a", "-b"}; !slices.Equal(told, want) {
		t.Errorf("%q", told)
	}
}
